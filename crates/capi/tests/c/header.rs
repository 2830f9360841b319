//! The header declares what the code exports, with the same types, and the examples use all of it.

use std::collections::BTreeMap;
use std::path::Path;

/// Types of Rust with those of the header.
const TYPES: &[(&str, &str)] = &[
    ("c_int", "int"),
    ("c_uint", "unsigned"),
    ("u64", "uint64_t"),
    ("usize", "size_t"),
    ("*const c_char", "const char *"),
    ("*const c_void", "const void *"),
    ("*mut c_void", "void *"),
    ("*mut u64", "uint64_t *"),
    ("*mut usize", "size_t *"),
    ("*const PoolOptions", "const tembo_options *"),
    ("*mut FixedRecord", "tembo_fixed_record *"),
    ("*mut RecordSize", "tembo_record_size *"),
    ("*mut c_int", "int *"),
    ("*mut c_uint", "unsigned *"),
    ("*mut VersionInfo", "tembo_version_info *"),
    ("*mut KeptSnapshot", "tembo_kept *"),
    ("*mut Name", "tembo_name *"),
    ("*mut PoolHandle", "tembo_pool *"),
    ("*const PoolHandle", "const tembo_pool *"),
    ("*mut *mut PoolHandle", "tembo_pool **"),
    ("*mut FixedHandle", "tembo_fixed *"),
    ("*const FixedHandle", "const tembo_fixed *"),
    ("*mut *mut FixedHandle", "tembo_fixed **"),
    ("*mut MapHandle", "tembo_map *"),
    ("*const MapHandle", "const tembo_map *"),
    ("*mut *mut MapHandle", "tembo_map **"),
    ("*mut StoreHandle", "tembo_store *"),
    ("*const StoreHandle", "const tembo_store *"),
    ("*mut *mut StoreHandle", "tembo_store **"),
    ("*mut KeyspaceHandle", "tembo_keyspace *"),
    ("*const KeyspaceHandle", "const tembo_keyspace *"),
    ("*mut *mut KeyspaceHandle", "tembo_keyspace **"),
    ("*mut TransactionHandle", "tembo_transaction *"),
    ("*mut *mut TransactionHandle", "tembo_transaction **"),
    ("*mut SnapshotHandle", "tembo_snapshot *"),
    ("*const SnapshotHandle", "const tembo_snapshot *"),
    ("*mut *mut SnapshotHandle", "tembo_snapshot **"),
];

/// A function's result and parameters, each parameter with its name, as C writes them.
type Functions = BTreeMap<String, String>;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn with_single_spaces(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The prototypes of the header.
fn declared() -> Functions {
    let header = read("include/tembo.h");
    let mut code = String::new();
    for part in header.split("/*") {
        code.push_str(part.split_once("*/").map_or(part, |(_, after)| after));
    }
    let prototypes =
        code.split(';').map(with_single_spaces).filter(|text| text.contains('(') && text.ends_with(')'));
    prototypes
        .map(|text| {
            let (head, parameters) = text.split_once('(').unwrap();
            let name = head.rsplit([' ', '*']).next().unwrap();
            let result = head.strip_suffix(name).unwrap().trim();
            (name.to_owned(), format!("{result} ({}", parameters))
        })
        .collect()
}

fn c_type(rust: &str) -> &'static str {
    TYPES.iter().find(|(known, _)| *known == rust).unwrap_or_else(|| panic!("{rust} has no row in TYPES")).1
}

/// The functions that the code exports, as the header would have to declare them.
fn exported() -> Functions {
    let sources = ["pool", "names", "fixed", "map", "store", "history"];
    let sources = sources.map(|file| read(&format!("src/ffi/{file}.rs"))).concat();
    let exports = sources.split("#[unsafe(no_mangle)]").skip(1);
    exports
        .map(|text| {
            let text = with_single_spaces(text.split_once('{').unwrap().0);
            let (name, rest) = text.split_once("fn ").unwrap().1.split_once('(').unwrap();
            let (parameters, result) = rest.rsplit_once(')').unwrap();
            let result = result.trim().strip_prefix("-> ").map_or("void", c_type);
            let parameters: Vec<String> = parameters
                .split(',')
                .filter(|parameter| !parameter.trim().is_empty())
                .map(|parameter| {
                    let (name, rust) = parameter.trim().split_once(": ").unwrap();
                    format!("{} {name}", c_type(rust)).replace("* ", "*")
                })
                .collect();
            let parameters = if parameters.is_empty() { "void".to_owned() } else { parameters.join(", ") };
            (name.to_owned(), format!("{result} ({parameters})"))
        })
        .collect()
}

#[test]
fn the_header_declares_what_the_code_exports() {
    let (declared, exported) = (declared(), exported());
    assert!(exported.len() > 20, "{exported:?}");
    assert_eq!(declared, exported);
}

#[test]
fn the_examples_use_every_function_and_every_comment_precedes_one() {
    let examples = ["examples/tour.c", "examples/threads.c"].map(read).concat();
    let unused: Vec<String> =
        exported().into_keys().filter(|name| !examples.contains(&format!("{name}("))).collect();
    assert_eq!(unused, [""; 0]);
    let header = read("include/tembo.h");
    let undocumented: Vec<&str> = header
        .split("\n\n")
        .filter(|paragraph| paragraph.contains(" tembo_") || paragraph.contains("*tembo_"))
        .filter(|paragraph| paragraph.trim_end().ends_with(");") && !paragraph.trim_start().starts_with("/*"))
        .collect();
    assert_eq!(undocumented, [""; 0]);
}
