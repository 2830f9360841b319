//! The modules of a crate, and the file that a path leads to.

use super::lexer::{Kind, Token};
use super::paths::{Leaf, from_root, leaves_from, module_of};
use super::tree::{RustFile, closing};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A path from the root of the crate.
type Path = Vec<String>;

/// The words that begin an item with a name.
const ITEMS: &[&str] = &["struct", "enum", "trait", "union", "type", "fn", "const", "static", "macro_rules"];

/// A module that has a file, or a part of one.
#[derive(Default)]
struct Module {
    /// The number of its file.
    file: usize,
    /// The names that are defined in it.
    items: BTreeSet<String>,
    /// The names that `use` brings into it, with what they stand for.
    names: BTreeMap<String, Path>,
    /// The modules of which it has all names.
    globs: Vec<Path>,
}

/// The modules of a crate.
pub(super) struct Modules<'a> {
    files: Vec<Source<'a>>,
    modules: BTreeMap<Path, Module>,
}

/// A file of a crate.
struct Source<'a> {
    path: &'a str,
    /// The module that it is; the root of the crate has the empty path.
    own: Path,
    /// The tokens that are neither comments nor tests.
    code: Vec<Token<'a>>,
    /// The module that each of them is in: the file's own, or one with a body in it.
    places: Vec<Rc<Path>>,
}

/// A name from another file, where a file uses it.
pub(super) struct Arrow {
    pub(super) line: usize,
    /// The number of the other file.
    pub(super) to: usize,
    pub(super) name: String,
}

/// A `use` declaration in a file.
struct Use {
    /// The token behind the word.
    at: usize,
    /// The token of its semicolon.
    end: usize,
    /// Others see the names, too.
    is_shared: bool,
}

impl<'a> Modules<'a> {
    /// The modules that these files below the folder `source` make, tests left out.
    pub(super) fn of(files: &[RustFile<'a>], source: &str) -> Modules<'a> {
        let product = files.iter().filter(|file| !file.is_test());
        let files: Vec<Source<'a>> = product.filter_map(|file| Source::of(file, source)).collect();
        let mut modules = BTreeMap::new();
        for (number, file) in files.iter().enumerate() {
            add(&mut modules, number, file);
        }
        Modules { files, modules }
    }

    /// How many files there are.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// The path of a file in the repository.
    pub(super) fn path(&self, file: usize) -> &'a str {
        self.files[file].path
    }

    /// The names that a file uses from others. What it only passes on (`pub use`) is none.
    pub(super) fn arrows(&self, file: usize) -> Vec<Arrow> {
        let Source { own, code, places, .. } = &self.files[file];
        let uses = uses_in(code);
        let mut is_in_use = vec![false; code.len()];
        for declared in &uses {
            is_in_use[declared.at - 1..declared.end].fill(true);
        }
        let words: BTreeSet<&str> = code
            .iter()
            .zip(&is_in_use)
            .filter(|(_, is_in_use)| !**is_in_use)
            .map(|(token, _)| token.text)
            .collect();
        let mut used: Vec<(usize, Leaf)> = Vec::new();
        for declared in &uses {
            let leaves = leaves_from(code, declared.at).into_iter();
            let leaves = leaves.filter(|leaf| !declared.is_shared || words.contains(&leaf.name[..]));
            used.extend(leaves.map(|leaf| (declared.at, leaf)));
        }
        for at in (0..code.len()).filter(|at| !is_in_use[*at]) {
            let continues = at >= 2 && code[at - 1].is_mark(':') && code[at - 2].is_mark(':');
            let goes_on = code.get(at + 1).is_some_and(|next| next.is_mark(':'))
                && code.get(at + 2).is_some_and(|next| next.is_mark(':'));
            if code[at].kind == Kind::Word && !continues && goes_on {
                used.extend(leaves_from(code, at).into_iter().map(|leaf| (at, leaf)));
            }
        }
        let arrow = |(at, leaf): (usize, Leaf)| {
            let path = absolute(&leaf.path, &places[at], &|name| self.knows(&places[at], name))?;
            let to = if leaf.name == "*" {
                self.file_with_items(&path)
            } else {
                self.file_of(&path, &mut BTreeSet::new())
            }?;
            let is_above = own.starts_with(&self.files[to].own);
            (!is_above).then(|| Arrow { line: code[at].line, to, name: path.join("::") })
        };
        used.into_iter().filter_map(arrow).collect()
    }

    /// Whether a path that begins with this name stays in the crate.
    fn knows(&self, place: &Path, name: &str) -> bool {
        let child: Path = place.iter().cloned().chain([name.to_owned()]).collect();
        let module = self.modules.get(place);
        self.modules.contains_key(&child) || module.is_some_and(|module| module.names.contains_key(name))
    }

    /// The file of a module that defines anything.
    fn file_with_items(&self, path: &Path) -> Option<usize> {
        self.modules.get(path).filter(|module| !module.items.is_empty()).map(|module| module.file)
    }

    /// The file of what a path from the root names. A module as a whole has none: a name in it counts.
    fn file_of(&self, path: &[String], seen: &mut BTreeSet<Path>) -> Option<usize> {
        let depth = (0..=path.len()).rev().find(|depth| self.modules.contains_key(&path[..*depth]))?;
        let (module, rest) = (self.modules.get(&path[..depth])?, &path[depth..]);
        let name = rest.first()?;
        // Two names that stand for each other lead nowhere.
        if !seen.insert(path[..=depth].to_vec()) {
            return None;
        }
        if module.items.contains(name) {
            return Some(module.file);
        }
        if let Some(target) = module.names.get(name) {
            let target: Path = target.iter().chain(&rest[1..]).cloned().collect();
            return self.file_of(&target, seen);
        }
        let through = |glob: &Path| {
            let target: Path = glob.iter().chain(rest).cloned().collect();
            self.file_of(&target, seen)
        };
        module.globs.iter().find_map(through)
    }
}

impl<'a> Source<'a> {
    fn of(file: &RustFile<'a>, source: &str) -> Option<Source<'a>> {
        let own = module_of(file.path, source)?;
        let own = if own == ["lib"] || own == ["main"] { Vec::new() } else { own };
        let code: Vec<Token<'a>> =
            file.code().into_iter().filter(|token| !file.is_test_line(token.line)).collect();
        let places = modules_of_tokens(&code, &own);
        Some(Source { path: file.path, own, code, places })
    }
}

/// Adds what a file defines and imports at the outermost level of its modules.
fn add(modules: &mut BTreeMap<Path, Module>, number: usize, file: &Source<'_>) {
    let Source { own, code, places, .. } = file;
    modules.entry(own.clone()).or_default().file = number;
    let mut depth = 0_usize;
    for (at, (token, place)) in code.iter().zip(places).enumerate() {
        if token.kind == Kind::Mark {
            match token.text {
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        if token.kind != Kind::Word || depth != place.len() - own.len() {
            continue;
        }
        let module = modules.entry((**place).clone()).or_default();
        module.file = number;
        if ITEMS.contains(&token.text) {
            module.items.extend(item_name(code, at));
        }
        let leaves = if token.text == "use" { leaves_from(code, at + 1) } else { Vec::new() };
        for Leaf { path, name } in leaves {
            let Some(path) = absolute(&path, place, &|_| true) else { continue };
            if name == "*" {
                module.globs.push(path);
            } else {
                module.names.insert(name, path);
            }
        }
    }
}

/// A path from the root; `None` if it leads out of the crate, which `is_inside` says of its first name.
fn absolute(path: &[String], place: &Path, is_inside: &dyn Fn(&str) -> bool) -> Option<Path> {
    match path.first()?.as_str() {
        "crate" | "super" => Some(from_root(path, place)),
        "self" => Some(place.iter().chain(&path[1..]).cloned().collect()),
        name if is_inside(name) => Some(place.iter().chain(path).cloned().collect()),
        _ => None,
    }
}

/// The module that each token is in.
fn modules_of_tokens(code: &[Token<'_>], own: &Path) -> Vec<Rc<Path>> {
    let mut places: Vec<_> = std::iter::repeat_n(Rc::new(own.clone()), code.len()).collect();
    for at in 0..code.len().saturating_sub(2) {
        if code[at].is_word("mod") && code[at + 2].is_mark('{') {
            let end = closing(code, at + 2).unwrap_or(code.len());
            let inside = places[at].iter().cloned().chain([code[at + 1].text.to_owned()]).collect();
            places[at + 3..end].fill(Rc::new(inside));
        }
    }
    places
}

fn uses_in(code: &[Token<'_>]) -> Vec<Use> {
    let declared = (0..code.len()).filter(|at| code[*at].is_word("use"));
    let of = |at: usize| {
        let end = (at..code.len()).find(|end| code[*end].is_mark(';')).unwrap_or(code.len());
        let before = at.checked_sub(1).map(|before| code[before]);
        let is_shared = before.is_some_and(|token| token.is_word("pub") || token.is_mark(')'));
        Use { at: at + 1, end, is_shared }
    };
    declared.map(of).collect()
}

/// The name of the item whose word is at `at`.
fn item_name(code: &[Token<'_>], at: usize) -> Option<String> {
    let qualifiers = ["mut", "unsafe", "async", "extern", "fn"];
    let mut rest = code[at + 1..].iter();
    let name = rest.find(|token| token.kind == Kind::Word && !qualifiers.contains(&token.text))?;
    Some(name.text.to_owned())
}
