//! The full memory fence is not used.

use super::{Report, Rule, Tree};

pub(super) const RULE: Rule = Rule {
    name: "weak-fence",
    why: "the full fence also holds back the loads of the next operation and costs several times as much as sfence, which orders everything that durability needs.",
    check,
};

/// The instruction's name; spelt in two parts because this file is checked as well.
const INSTRUCTION: &str = concat!("mf", "ence");

fn check(tree: &Tree, report: &mut Report<'_>) {
    for file in tree.rust_files() {
        for token in file.tokens.iter().filter(|token| !token.is_comment()) {
            for (below, line) in token.text.lines().enumerate() {
                if line.contains(INSTRUCTION) {
                    let what = format!("`{INSTRUCTION}` is used");
                    let fix = "call Region::fence (sfence on x86-64, dsb on AArch64), or an atomic with SeqCst order between threads";
                    report.add(file.path, token.line + below, what, fix);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::broken;
    use super::*;

    #[test]
    fn the_full_fence_is_found_in_assembly_and_as_an_intrinsic() {
        let assembly = format!("fn f() {{\n    asm!(\"{INSTRUCTION}\");\n}}\n");
        let intrinsic = format!("use core::arch::x86_64::_mm_{INSTRUCTION};\n");
        let path = "crates/pmem/src/flush.rs";
        assert_eq!(broken(&RULE, &[(path, &assembly)]), ["crates/pmem/src/flush.rs:2"]);
        assert_eq!(broken(&RULE, &[(path, &intrinsic)]), ["crates/pmem/src/flush.rs:1"]);
    }

    #[test]
    fn comments_may_name_it_and_the_store_fence_is_welcome() {
        let source = format!("// Not {INSTRUCTION}.\nfn f() {{ asm!(\"sfence\"); }}\n");
        assert_eq!(broken(&RULE, &[("crates/pmem/src/flush.rs", &source)]), [""; 0]);
    }
}
