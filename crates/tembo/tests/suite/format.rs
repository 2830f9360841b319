//! `docs/format.md` describes the format that the code has.

use std::path::Path;

const BEGIN: &str = "<!-- generated: begin -->\n";
const END: &str = "<!-- generated: end -->";

/// `TEMBO_BLESS=1 cargo test -p tembo --test suite format::` writes the tables anew.
#[test]
fn the_format_document_matches_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = text.split_once(BEGIN).expect("the mark before the generated part");
    let (generated, tail) = rest.split_once(END).expect("the mark after the generated part");
    let expected = format!(
        "\n{}{}{}{}{}",
        tembo_pool::format::describe_offsets() + "\n",
        tembo_pool::format::describe(),
        tembo_index::format::describe(),
        tembo_store::format::describe(),
        tembo_heap::format::describe()
    );
    if std::env::var_os("TEMBO_BLESS").is_some() {
        std::fs::write(&path, format!("{head}{BEGIN}{expected}\n{END}{tail}")).unwrap();
        return;
    }
    assert!(
        generated.trim() == expected.trim(),
        "docs/format.md is out of date; run this test with TEMBO_BLESS=1"
    );
}
