//! Compiles the engines with a C interface whose libraries are installed, and notes which are not.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// An engine with a C interface.
struct Library {
    /// The file in `c/`, and the value of `cfg(peer)`.
    name: &'static str,
    header: &'static str,
    link: &'static str,
    /// The Debian package, which also knows the library's version.
    package: &'static str,
}

const LIBRARIES: &[Library] = &[
    Library { name: "pmemobj", header: "libpmemobj.h", link: "pmemobj", package: "libpmemobj-dev" },
    Library { name: "bdb", header: "db.h", link: "db-5.3", package: "libdb5.3-dev" },
    Library { name: "lmdb", header: "lmdb.h", link: "lmdb", package: "liblmdb-dev" },
    Library { name: "leveldb", header: "leveldb/c.h", link: "leveldb", package: "libleveldb-dev" },
    Library { name: "rocksdb", header: "rocksdb/c.h", link: "rocksdb", package: "librocksdb-dev" },
];

fn main() {
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-changed=../Cargo.lock");
    let mut missing = Vec::new();
    for library in LIBRARIES {
        if has_header(library.header) {
            compile(library);
            match library.name {
                "pmemobj" => compile_heaps(library),
                "bdb" => compile_programs(),
                "lmdb" => compile_held(),
                _ => {}
            }
        } else {
            missing.push(library.package);
        }
    }
    cc::Build::new().file("c/error.c").std("gnu11").compile("peer_error");
    println!("cargo::rustc-env=PEERS_MISSING={}", missing.join(" "));
    for name in ["redb", "fjall"] {
        println!("cargo::rustc-env=PEERS_{}={}", name.to_uppercase(), locked_version(name));
    }
}

/// Whether the C compiler finds `header`.
fn has_header(header: &str) -> bool {
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let probe = Path::new(&out).join("probe.c");
    fs::write(&probe, format!("#include <{header}>\n")).expect("the output folder can be written");
    cc::Build::new().file(&probe).cargo_warnings(false).cargo_output(false).try_expand().is_ok()
}

fn compile(library: &Library) {
    let version = format!("\"{}\"", package_version(library.package));
    cc::Build::new()
        .file(format!("c/{}.c", library.name))
        .std("gnu11")
        .define("PEER_VERSION", version.as_str())
        .extra_warnings(true)
        // Variables that setjmp might clobber are volatile where it matters; the others are not used after
        // it.
        .flag_if_supported("-Wno-clobbered")
        .compile(&format!("peer_{}", library.name));
    println!("cargo::rustc-link-lib=dylib={}", library.link);
    println!("cargo::rustc-cfg=peer=\"{}\"", library.name);
}

/// Compiles the comparison of heaps, and the library that counts fences.
fn compile_heaps(library: &Library) {
    let version = format!("\"{}\"", package_version(library.package));
    cc::Build::new()
        .files(["c/heap_pmemobj.c", "c/heap_floor.c"])
        .std("gnu11")
        .opt_level(3)
        .define("PEER_VERSION", version.as_str())
        .extra_warnings(true)
        .flag_if_supported("-Wno-clobbered")
        .compile("peer_heaps");
    let counting = Path::new(&env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("libpeer_count.so");
    let mut compiler = cc::Build::new().pic(true).std("gnu11").get_compiler().to_command();
    let made = compiler.args(["-shared", "c/heap_count.c", "-ldl", "-o"]).arg(&counting).status();
    assert!(made.is_ok_and(|status| status.success()), "the library that counts fences could not be built");
    println!("cargo::rustc-env=PEERS_COUNT_LIBRARY={}", counting.display());
}

/// Compiles Berkeley DB's part of the comparison of programs.
fn compile_programs() {
    cc::Build::new().file("c/programs_bdb.c").std("gnu11").extra_warnings(true).compile("peer_programs");
}

/// Compiles LMDB's part of the comparison of held snapshots.
fn compile_held() {
    cc::Build::new().file("c/lmdb_held.c").std("gnu11").extra_warnings(true).compile("peer_held");
}

/// The version of an installed Debian package, without its packaging's part.
fn package_version(package: &str) -> String {
    let query = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output();
    let text = query.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    match text.split(['-', '+']).next() {
        Some(version) if !version.is_empty() => version.to_owned(),
        _ => "of unknown version".to_owned(),
    }
}

/// The version of a crate in Cargo.lock.
fn locked_version(name: &str) -> String {
    let text = fs::read_to_string("../Cargo.lock").unwrap_or_default();
    let lock: toml::Table = text.parse().unwrap_or_default();
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let found = packages
        .into_iter()
        .flatten()
        .find(|package| package.get("name").and_then(toml::Value::as_str) == Some(name));
    let version = found.and_then(|package| package.get("version")).and_then(toml::Value::as_str);
    version.unwrap_or("of unknown version").to_owned()
}
