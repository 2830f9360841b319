//! Unsafe code stays where it is expected.

use super::lexer::Kind;
use super::tree::RustFile;
use super::{Report, Rule, Tree};

pub(super) const RULE: Rule = Rule {
    name: "unsafe-code",
    why: "memory safety is proved by hand in few files, which reviewers know; everything else is safe by construction.",
    check,
};

/// Crates whose root must forbid unsafe code, so that the compiler keeps the rule too.
pub(super) const FORBIDDING: &[&str] = &["wire", "rdb", "server", "tembo", "cli"];
/// Crates in which any file may be unsafe.
pub(super) const TRUSTED: &[&str] = &["pmem", "sync", "pool"];
/// Crates in which node and layout files may be unsafe.
pub(super) const PARTLY_TRUSTED: &[&str] = &["index", "heap"];
/// Single files: those at which code in C begins, or a child process in a test, and those of the heap that
/// declare its unsafe traits and keep to them.
pub(super) const BOUNDARIES: &[&str] = &[
    "research/peers/src/engines/floor.rs",
    "research/peers/src/engines/native.rs",
    "research/peers/src/heap/native.rs",
    "research/peers/src/programs/native.rs",
    "crates/capi/src/ffi/args.rs",
    "crates/capi/src/ffi/cancel.rs",
    "crates/capi/src/ffi/fixed.rs",
    "crates/capi/src/ffi/history.rs",
    "crates/capi/src/ffi/map.rs",
    "crates/capi/src/ffi/store.rs",
    "crates/capi/src/ffi/names.rs",
    "crates/capi/src/ffi/pool.rs",
    "crates/store/tests/model.rs",
    "crates/heap-derive/src/access.rs",
    "crates/heap-derive/src/persist.rs",
    "crates/heap-derive/src/plain.rs",
    "crates/heap/src/objects/brand.rs",
    "crates/heap/src/objects/numbers.rs",
    "crates/heap/src/objects/persist.rs",
    "crates/heap/src/objects/place.rs",
    "crates/heap/src/objects/slots.rs",
    "crates/heap/src/objects/standard.rs",
    "crates/heap/src/objects/value_buffer.rs",
    "crates/heap/src/stm/running.rs",
    "crates/heap/src/stm/writer_slots.rs",
    "crates/heap/src/tx/thread_bound.rs",
    "crates/tembo/tests/fork/child.rs",
];

fn check(tree: &Tree, report: &mut Report<'_>) {
    for file in tree.rust_files() {
        if let Some(name) = crate_of(file.path) {
            check_root(&file, name, report);
        }
        check_uses(&file, report);
    }
}

/// The directory name of the crate that a file belongs to.
fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.split('/').next()
}

fn check_root(file: &RustFile<'_>, name: &str, report: &mut Report<'_>) {
    let roots = ["lib.rs", "main.rs"].map(|root| format!("crates/{name}/src/{root}"));
    if !FORBIDDING.contains(&name) || !roots.iter().any(|root| root == file.path) {
        return;
    }
    let code: Vec<&str> = file.code().iter().map(|token| token.text).collect();
    let attribute = ["#", "!", "[", "forbid", "(", "unsafe_code", ")", "]"];
    if !code.windows(attribute.len()).any(|window| window == attribute) {
        let what = format!("crate `{name}` does not forbid unsafe code");
        report.add(file.path, 1, what, "write `#![forbid(unsafe_code)]` after the head comment");
    }
}

fn check_uses(file: &RustFile<'_>, report: &mut Report<'_>) {
    if may_be_unsafe(file) {
        return;
    }
    for token in file.tokens.iter().filter(|token| token.kind == Kind::Word && token.text == "unsafe") {
        let fix = "use the checked operations of tembo-pmem, or move the access into a node or layout file of index or heap";
        report.add(file.path, token.line, "unsafe code outside the files that may have it", fix);
    }
}

fn may_be_unsafe(file: &RustFile<'_>) -> bool {
    if BOUNDARIES.contains(&file.path) {
        return true;
    }
    match crate_of(file.path) {
        Some(name) if TRUSTED.contains(&name) => true,
        Some(name) if PARTLY_TRUSTED.contains(&name) => {
            ["node.rs", "layout.rs"].contains(&file.name()) || file.path.contains("/node/")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::broken;
    use super::*;

    #[test]
    fn a_crate_that_must_forbid_unsafe_code_and_does_not_is_found() {
        for name in FORBIDDING {
            let path = format!("crates/{name}/src/lib.rs");
            assert_eq!(broken(&RULE, &[(&path, "//! #![forbid(unsafe_code)]\n")]), [format!("{path}:1")]);
            assert_eq!(broken(&RULE, &[(&path, "//! Head.\n#![forbid(unsafe_code)]\n")]), [""; 0]);
        }
    }

    #[test]
    fn unsafe_code_is_found_outside_its_places() {
        let source = "fn f() {\n    unsafe { g() }\n}\n";
        let outside = [
            "crates/index/src/wbtree/insert.rs",
            "crates/crashsim/src/lib.rs",
            "xtask/src/main.rs",
            "tests/kill.rs",
            "research/peers/src/engines/redb.rs",
            "crates/capi/src/status.rs",
            "crates/capi/tests/c.rs",
        ];
        for path in outside {
            assert_eq!(broken(&RULE, &[(path, source)]), [format!("{path}:2")]);
        }
        let inside = [
            "crates/pmem/src/region.rs",
            "crates/pool/src/alloc/slab.rs",
            "crates/index/src/wbtree/node.rs",
            "crates/index/src/wbtree/layout.rs",
            "crates/index/src/wbtree/node/search.rs",
            "crates/index/src/wbtree/node/simd/avx2.rs",
            "research/peers/src/engines/native.rs",
            "research/peers/src/heap/native.rs",
            "crates/capi/src/ffi/map.rs",
        ];
        for path in inside {
            assert_eq!(broken(&RULE, &[(path, source)]), [""; 0], "{path}");
        }
    }

    #[test]
    fn the_word_in_comments_strings_and_names_is_not_unsafe_code() {
        let source = "// unsafe\nfn f(unsafe_op: u8) { g(\"unsafe\"); }\n#![deny(unsafe_code)]\n";
        assert_eq!(broken(&RULE, &[("crates/crashsim/src/lib.rs", source)]), [""; 0]);
    }
}
