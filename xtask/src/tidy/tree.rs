//! The files that the rules look at.

use super::lexer::{self, Kind, Token};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Directories that hold no source: build output, version control, fuzzing corpora.
const SKIPPED_DIRECTORIES: &[&str] = &["target", "node_modules", "corpus", "artifacts"];
/// Hidden directories that hold source.
const HIDDEN_SOURCE: &[&str] = &[".cargo", ".ci", ".github"];
/// Extensions of text that people write.
const TEXT_EXTENSIONS: &[&str] = &["rs", "md", "toml", "sh", "yml", "yaml"];

/// The files of a workspace.
pub(crate) struct Tree {
    texts: Vec<TextFile>,
    /// Every file, text or not, by its path from the root with `/` between names.
    paths: BTreeSet<String>,
}

/// A file that people write.
pub(super) struct TextFile {
    pub(super) path: String,
    pub(super) text: String,
}

impl TextFile {
    /// Whether this is the manifest of a crate that has a place in the layers.
    pub(super) fn is_package_manifest(&self) -> bool {
        let mut folders = self.path.split('/');
        let parent = folders.next().is_some_and(|folder| ["crates", "tools", "research"].contains(&folder));
        parent && folders.nth(1) == Some("Cargo.toml") && folders.next().is_none()
    }
}

impl Tree {
    /// Reads the files below `root`.
    ///
    /// # Errors
    ///
    /// When a directory or file cannot be read; the error names it.
    pub(crate) fn read(root: &Path) -> Result<Tree, String> {
        let mut tree = Tree { texts: Vec::new(), paths: BTreeSet::new() };
        tree.read_directory(root, "").map_err(|(path, e)| format!("reading {path}: {e}"))?;
        Ok(tree)
    }

    fn read_directory(&mut self, root: &Path, below: &str) -> Result<(), (String, io::Error)> {
        let directory = root.join(below);
        let entries = std::fs::read_dir(&directory).map_err(|e| (below.to_owned(), e))?;
        for entry in entries {
            let entry = entry.map_err(|e| (below.to_owned(), e))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
            let kind = entry.file_type().map_err(|e| (path.clone(), e))?;
            if kind.is_dir() {
                let skipped = SKIPPED_DIRECTORIES.contains(&name.as_str())
                    || name.starts_with('.') && !HIDDEN_SOURCE.contains(&name.as_str());
                if !skipped {
                    self.read_directory(root, &path)?;
                }
                continue;
            }
            if kind.is_file() && is_text(&path) {
                let text = std::fs::read_to_string(entry.path()).map_err(|e| (path.clone(), e))?;
                self.texts.push(TextFile { path: path.clone(), text });
            }
            self.paths.insert(path);
        }
        Ok(())
    }

    /// A tree of these files.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Tree {
        let texts = files.iter().filter(|(path, _)| is_text(path));
        Tree {
            texts: texts.map(|(p, t)| TextFile { path: (*p).to_owned(), text: (*t).to_owned() }).collect(),
            paths: files.iter().map(|(path, _)| (*path).to_owned()).collect(),
        }
    }

    /// How many files are checked.
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Every file that people write.
    pub(super) fn text_files(&self) -> impl Iterator<Item = &TextFile> {
        self.texts.iter()
    }

    /// The Rust files.
    pub(super) fn rust_files(&self) -> impl Iterator<Item = RustFile<'_>> {
        self.text_files().filter(|file| file.path.ends_with(".rs")).map(RustFile::new)
    }

    /// The text of the file at `path`.
    pub(super) fn text(&self, path: &str) -> Option<&TextFile> {
        self.texts.iter().find(|file| file.path == path)
    }

    /// Whether there is a file or a directory at `path`.
    pub(super) fn exists(&self, path: &str) -> bool {
        let below = format!("{path}/");
        path.is_empty()
            || self.paths.contains(path)
            || self.paths.range(below.clone()..).next().is_some_and(|p| p.starts_with(&below))
    }
}

/// Files without an extension in `.ci` are shell scripts.
fn is_text(path: &str) -> bool {
    match path.rsplit('/').next().unwrap_or(path).rsplit_once('.') {
        Some((_, extension)) => TEXT_EXTENSIONS.contains(&extension),
        None => path.starts_with(".ci/"),
    }
}

/// A Rust file and its tokens.
pub(super) struct RustFile<'a> {
    pub(super) path: &'a str,
    pub(super) text: &'a str,
    /// All tokens, comments included.
    pub(super) tokens: Vec<Token<'a>>,
    /// The lines of items that exist only in tests.
    test_lines: Vec<Range<usize>>,
}

impl<'a> RustFile<'a> {
    fn new(file: &'a TextFile) -> RustFile<'a> {
        let tokens = lexer::lex(&file.text);
        let test_lines = test_items(&tokens);
        RustFile { path: &file.path, text: &file.text, tokens, test_lines }
    }

    /// The directory that the file is in.
    pub(super) fn directory(&self) -> &'a str {
        self.path.rsplit_once('/').map_or("", |(directory, _)| directory)
    }

    /// The file's own name.
    pub(super) fn name(&self) -> &'a str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    /// Whether the whole file is test code.
    pub(super) fn is_test(&self) -> bool {
        let directories = ["/tests/", "/benches/"];
        let path = format!("/{}", self.path);
        self.name() == "tests.rs"
            || self.name().ends_with("_tests.rs")
            || directories.iter().any(|d| path.contains(d))
    }

    /// Whether this line is test code.
    pub(super) fn is_test_line(&self, line: usize) -> bool {
        self.is_test() || self.test_lines.iter().any(|lines| lines.contains(&line))
    }

    /// The tokens without comments.
    pub(super) fn code(&self) -> Vec<Token<'a>> {
        self.tokens.iter().copied().filter(|token| !token.is_comment()).collect()
    }
}

/// The line ranges of items under `#[cfg(test)]`, or of everything under `#![cfg(test)]`.
fn test_items(tokens: &[Token<'_>]) -> Vec<Range<usize>> {
    let code: Vec<Token<'_>> = tokens.iter().copied().filter(|token| !token.is_comment()).collect();
    let mut ranges = Vec::new();
    for at in 0..code.len() {
        let Some(attribute) = attribute_at(&code, at) else { continue };
        if !is_test_condition(&code[attribute.clone()]) {
            continue;
        }
        if code[at + 1].is_mark('!') {
            ranges.push(0..usize::MAX);
        } else if let Some(last) = item_end(&code, attribute.end + 1) {
            ranges.push(code[at].line..last + 1);
        }
    }
    ranges
}

/// The tokens between the brackets of the attribute that begins with the `#` at `at`.
pub(super) fn attribute_at(code: &[Token<'_>], at: usize) -> Option<Range<usize>> {
    if !code[at].is_mark('#') {
        return None;
    }
    let open = at + 1 + usize::from(code.get(at + 1)?.is_mark('!'));
    code.get(open).filter(|token| token.is_mark('['))?;
    Some(open + 1..closing(code, open)?)
}

/// Whether the inside of an attribute is a `cfg` that requires `test`.
fn is_test_condition(attribute: &[Token<'_>]) -> bool {
    let mut cfg = attribute.iter().take(2);
    cfg.next().is_some_and(|t| t.is_word("cfg"))
        && cfg.next().is_some_and(|t| t.is_mark('('))
        && requires_test(&attribute[2..attribute.len() - 1])
}

/// Whether a condition holds in tests only.
fn requires_test(condition: &[Token<'_>]) -> bool {
    match condition {
        [only] => only.is_word("test"),
        [all, open, parts @ .., _] if all.is_word("all") && open.is_mark('(') => {
            let mut depth = 0_usize;
            let parts = parts.split(|token| {
                match token.text {
                    "(" => depth += 1,
                    ")" => depth = depth.saturating_sub(1),
                    _ => {}
                }
                depth == 0 && token.is_mark(',')
            });
            parts.into_iter().any(requires_test)
        }
        _ => false,
    }
}

/// The last line of the item that begins at token `from`.
pub(super) fn item_end(code: &[Token<'_>], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(token) = code.get(at) {
        if token.is_mark(';') {
            return Some(token.line);
        }
        if token.is_mark('{') {
            return closing(code, at).map(|end| code[end].line);
        }
        at = if token.is_mark('(') || token.is_mark('[') { closing(code, at)? + 1 } else { at + 1 };
    }
    None
}

/// The index of the bracket that closes the one at `open`.
pub(super) fn closing(code: &[Token<'_>], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in code.iter().enumerate().skip(open).filter(|(_, t)| t.kind == Kind::Mark) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_lines(source: &str) -> Vec<usize> {
        let tree = Tree::of(&[("crates/a/src/lib.rs", source)]);
        let file = tree.rust_files().next().unwrap();
        (1..=source.lines().count()).filter(|line| file.is_test_line(*line)).collect()
    }

    #[test]
    fn items_under_cfg_test_are_test_code() {
        let source = "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        assert_eq!(test_lines(source), [2, 3, 4, 5, 6]);
        assert_eq!(test_lines("#[cfg(test)]\nuse a::b;\nuse c;\n"), [1, 2]);
        assert_eq!(test_lines("#![cfg(test)]\nfn a() {}\n"), [1, 2]);
        assert_eq!(test_lines("#[cfg(all(unix, all(test, not(miri))))]\nuse a::b;\nuse c;\n"), [1, 2]);
    }

    #[test]
    fn other_conditions_are_not() {
        for attribute in [
            "#[cfg(not(test))]",
            "#[cfg(any(test, unix))]",
            "#[cfg(all(unix, not(test)))]",
            "#[cfg(unix)]",
            "#[test_case]",
        ] {
            assert_eq!(test_lines(&format!("{attribute}\nfn a() {{\n}}\n")), [0; 0], "{attribute}");
        }
    }

    #[test]
    fn test_files_are_known_by_their_place() {
        let places =
            ["tests/kill.rs", "crates/a/tests/b.rs", "crates/a/src/wb/tests.rs", "crates/a/benches/b.rs"];
        for path in places {
            assert!(Tree::of(&[(path, "")]).rust_files().all(|f| f.is_test()), "{path}");
        }
        let tree = Tree::of(&[("crates/a/src/latests.rs", "")]);
        assert!(tree.rust_files().all(|f| !f.is_test()));
    }

    #[test]
    fn directories_exist_when_they_hold_a_file() {
        let tree = Tree::of(&[("docs/format.md", ""), ("docs-old.md", "")]);
        assert!(tree.exists("docs") && tree.exists("docs/format.md") && tree.exists(""));
        assert!(!tree.exists("doc") && !tree.exists("docs/format"));
    }
}
