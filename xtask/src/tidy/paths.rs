//! Paths in source: the modules that files are, and the names in `use` trees.

use super::lexer::{Kind, Token};
use super::tree::closing;
use std::ops::Range;

/// A leaf of a tree of paths.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// The path, without a `self` at its end.
    pub(super) path: Vec<String>,
    /// The name that it has from then on; `*` for all that is in it.
    pub(super) name: String,
}

/// The module that a file of the crate is: `tx/commit.rs` is `tx::commit`, `tx/mod.rs` is `tx`. Files of
/// tests have none.
pub(super) fn module_of(path: &str, source: &str) -> Option<Vec<String>> {
    let inside = path.strip_prefix(source)?.strip_prefix('/')?.strip_suffix(".rs")?;
    let mut names: Vec<String> = inside.split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|name| name == "mod") {
        names.pop();
    }
    names.first().is_some_and(|name| name != "tests").then_some(names)
}

/// A path that begins with `crate` or `super`, from the crate's root.
pub(super) fn from_root(path: &[String], module: &[String]) -> Vec<String> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    if supers == 0 {
        return path[1..].to_vec();
    }
    let above = &module[..module.len().saturating_sub(supers)];
    above.iter().chain(&path[supers..]).cloned().collect()
}

/// The paths of the tree (`a::{b, c::d}`) that begins at token `at`.
pub(super) fn paths_from(code: &[Token<'_>], at: usize) -> Vec<Vec<String>> {
    leaves_from(code, at).into_iter().map(|leaf| leaf.path).collect()
}

/// The leaves of the tree (`a::{b, c::d as e}`) that begins at token `at`.
pub(super) fn leaves_from(code: &[Token<'_>], at: usize) -> Vec<Leaf> {
    let (mut path, mut at, mut is_glob) = (Vec::new(), at, false);
    while let Some(token) = code.get(at) {
        if token.kind == Kind::Word {
            path.push(token.text.to_owned());
        } else if token.is_mark('{') {
            let end = closing(code, at).unwrap_or(code.len());
            return branches(code, at + 1..end)
                .flat_map(|branch| leaves_from(code, branch))
                .map(|leaf| below(&path, leaf))
                .collect();
        } else if token.is_mark('*') {
            is_glob = true;
        } else {
            break;
        }
        at += 1;
        let goes_on =
            code.get(at).is_some_and(|t| t.is_mark(':')) && code.get(at + 1).is_some_and(|t| t.is_mark(':'));
        if !goes_on {
            break;
        }
        at += 2;
    }
    let renamed = code.get(at).filter(|token| token.is_word("as")).and_then(|_| code.get(at + 1));
    let name = if is_glob { Some("*") } else { renamed.map(|token| token.text) };
    let Some(last) = path.last() else { return Vec::new() };
    let name = name.map_or_else(|| last.clone(), str::to_owned);
    vec![Leaf { path, name }]
}

/// A leaf of a group behind `path`.
fn below(path: &[String], leaf: Leaf) -> Leaf {
    let mut all = path.to_vec();
    if leaf.path == ["self"] {
        let name = if leaf.name == "self" { path.last().cloned().unwrap_or_default() } else { leaf.name };
        return Leaf { path: all, name };
    }
    all.extend(leaf.path);
    Leaf { path: all, name: leaf.name }
}

/// Where the parts of a group begin.
fn branches(code: &[Token<'_>], group: Range<usize>) -> impl Iterator<Item = usize> {
    let mut depth = 0_usize;
    let mut starts = vec![group.start];
    for at in group.clone() {
        match code[at].text {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            "," if depth == 0 => starts.push(at + 1),
            _ => {}
        }
    }
    starts.into_iter().filter(move |start| *start < group.end)
}

#[cfg(test)]
mod tests {
    use super::super::lexer::lex;
    use super::*;

    fn leaves(source: &str) -> Vec<(String, String)> {
        let leaves = leaves_from(&lex(source), 0).into_iter();
        leaves.map(|leaf| (leaf.path.join("::"), leaf.name)).collect()
    }

    #[test]
    fn each_leaf_has_its_path_and_its_name() {
        let found = leaves("crate::{a::{self, B as C, d::*}, e::{self as f}, G};");
        let wanted = [("crate::a", "a"), ("crate::a::B", "C"), ("crate::a::d", "*"), ("crate::e", "f")];
        let wanted = wanted.into_iter().chain([("crate::G", "G")]);
        let wanted: Vec<_> = wanted.map(|(path, name)| (path.to_owned(), name.to_owned())).collect();
        assert_eq!(found, wanted);
        assert_eq!(leaves("super::x::f(1)"), [("super::x::f".to_owned(), "f".to_owned())]);
        assert_eq!(leaves("*;"), []);
    }
}
