//! Pools that a power failure left with pages of different ages. (20 of 20 such images were damaged, opened
//! and served.)

use crate::serve::Server;
use crate::support::{Workspace, bytes};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io::{Read, Write};
use std::net::TcpStream;
use xxhash_rust::xxh3::xxh3_64;

/// Where the header says how the pool was last used, and the bits of it that are a hash of the boot's id.
const OPENING_OFF: usize = 256;
const BOOT_SHIFT: u32 = 24;
const CHECK_SHIFT: u32 = 48;
const PAGE_BYTES: usize = 4096;

/// Has the image come from another boot of the machine.
fn move_to_another_boot(image: &mut [u8]) {
    let word = &mut image[OPENING_OFF..OPENING_OFF + 8];
    let said = u64::from_le_bytes((&*word).try_into().unwrap()) & ((1 << CHECK_SHIFT) - 1);
    let moved = said ^ 1 << BOOT_SHIFT;
    word.copy_from_slice(&(moved | xxh3_64(&moved.to_le_bytes()) << CHECK_SHIFT).to_le_bytes());
}

/// Puts records through one connection; returns when all are acknowledged.
fn put(server: &Server, numbers: std::ops::Range<u32>) {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let count = numbers.len();
    let commands: String =
        numbers.map(|i| format!("SET key{} {}\r\n", i % 5000, "x".repeat(20 + i as usize % 600))).collect();
    stream.write_all(commands.as_bytes()).unwrap();
    let mut replies = vec![0; 5 * count];
    stream.read_exact(&mut replies).unwrap();
}

#[test]
fn an_image_with_stale_pages_is_never_served_and_its_damage_is_named() {
    let workspace = Workspace::new();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(33);
    let server = Server::start(&workspace, "--durability page-cache");
    let path = workspace.path("tembo.pool");
    put(&server, 0..4000);
    let mut damaged = 0;
    for round in 0..20u32 {
        let older = bytes(&path);
        put(&server, 4000 + 700 * round..4700 + 700 * round);
        let mut image = bytes(&path);
        // A tenth of the pages that changed had not been written back. The header's had, or it would say so
        // as well.
        for at in (PAGE_BYTES..older.len()).step_by(PAGE_BYTES) {
            let page = at..at + PAGE_BYTES;
            if older[page.clone()] != image[page.clone()] && random.random_bool(0.1) {
                image[page.clone()].copy_from_slice(&older[page]);
            }
        }
        move_to_another_boot(&mut image);
        std::fs::write(workspace.path("image"), &image).unwrap();
        // The server last: where it does not refuse the image, it does not end.
        for command in
            ["dump image", "bench --seeded --resume --pool image", "serve --listen 127.0.0.1:0 --pool image"]
        {
            workspace.run(command).fails_with("--accept-unclean");
        }
        let check = workspace.run("check image");
        let dump = workspace.run("dump image --accept-unclean");
        match check.code {
            Some(0) => {
                assert!(check.text().contains("its values are not proved"), "{check:?}");
                assert!(dump.ok().stderr.contains("its values were not"));
            }
            _ => {
                damaged += 1;
                let finding = check.text().lines().next().unwrap().trim_start_matches("image: ").to_owned();
                dump.fails_with("does not pass the check").fails_with(&finding);
                workspace
                    .run("serve --accept-unclean --listen 127.0.0.1:0 --pool image")
                    .fails_with("does not pass the check");
            }
        }
        assert!(bytes(&workspace.path("image")) == image, "round {round}: the image was changed");
    }
    assert!(damaged > 0, "no image was damaged, so that this shows nothing");
    server.kill();
    // In this boot every store is kept.
    let again = Server::start(&workspace, "--durability page-cache");
    assert!(again.greeting.contains("power failure can cost the whole pool"), "{}", again.greeting);
    again.kill();
    workspace.run("check tembo.pool").ok();
    workspace.run("dump tembo.pool").ok();
}

#[test]
fn a_sound_image_is_served_once_that_is_accepted_and_is_a_pool_like_others_then() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "");
    put(&server, 0..1000);
    let mut image = bytes(&workspace.path("tembo.pool"));
    server.kill();
    move_to_another_boot(&mut image);
    std::fs::write(workspace.path("image"), &image).unwrap();
    let info = workspace.run("info image --json").ok().json();
    assert!(["other-boot", "copy"].contains(&info["last_use"].as_str().unwrap()), "{info}");
    assert!(workspace.run("info image").ok().text().contains("pages may be of different ages"));
    workspace.run("snapshot list image").ok();
    workspace.run("snapshot keep image db0 monday").fails_with("--accept-unclean");
    workspace.run("check image --json").ok();
    let server = Server::start(&workspace, "--pool image --accept-unclean");
    assert!(
        server.greeting.contains("its structure was proved just now, its values were not"),
        "{}",
        server.greeting
    );
    server.ask("EXISTS key7", ":1\r\n");
    server.ask("SHUTDOWN", "");
    assert_eq!(server.end().0, Some(0));
    assert_eq!(workspace.run("info image --json").ok().json()["last_use"], "closed");
    workspace.run("dump image").ok();
}

#[test]
fn a_copy_of_a_pool_in_use_is_told_from_one_of_a_closed_pool() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "");
    put(&server, 0..100);
    std::fs::copy(workspace.path("tembo.pool"), workspace.path("copy")).unwrap();
    workspace.run("dump copy").fails_with("this is a copy that was made meanwhile");
    server.ask("SHUTDOWN", "");
    assert_eq!(server.end().0, Some(0));
    std::fs::copy(workspace.path("tembo.pool"), workspace.path("copy")).unwrap();
    workspace.run("dump copy").ok();
    workspace.run("load --merge copy --accept-unclean --input none").fails_with("none");
}
