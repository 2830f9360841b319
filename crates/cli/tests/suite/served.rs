//! Pools that another process has open: what works beside it if it serves its stores, and what is said if
//! not.

use crate::serve::Server;
use crate::support::Workspace;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use tembo::store::Retention;
use tembo::store::remote::{RemoteStore, ServeOptions, Serving, socket_of};
use tembo::{Options, Pool};

/// A pool with a store, open in this process.
fn owner(workspace: &Workspace) -> Pool {
    let pool = Options::new().create(true).open(workspace.path("a.pool")).unwrap();
    let store = pool.open_store("bank").unwrap();
    let accounts = store.keyspace_with("accounts", Retention::Versions(2)).unwrap();
    for (name, value) in [("ann", "100"), ("bob", "20"), ("eve", "5")] {
        store.put(&accounts, name, value).unwrap();
    }
    store.keep(store.snapshot().number(), "monday").unwrap();
    store.put(&accounts, "ann", "70").unwrap();
    store.delete(&accounts, "eve").unwrap();
    pool
}

fn serve(workspace: &Workspace, pool: &Pool) -> Serving {
    pool.serve_stores(socket_of(workspace.path("a.pool")), ServeOptions::default()).unwrap()
}

#[test]
fn a_served_store_is_read_beside_its_owner() {
    let workspace = Workspace::new();
    let pool = owner(&workspace);
    let _serving = serve(&workspace, &pool);
    let text = |command: &str| workspace.run(command).ok().text();
    assert_eq!(text("store get a.pool accounts ann"), "70\n");
    assert_eq!(text("store get a.pool accounts ann --at monday"), "100\n");
    assert_eq!(text("store scan a.pool accounts"), "ann\t70\nbob\t20\n");
    assert_eq!(text("store scan a.pool accounts --at monday --reverse --limit 2"), "eve\t5\nbob\t20\n");
    assert_eq!(text("store history a.pool accounts ann").lines().count(), 2);
    let ls = text("store ls a.pool");
    assert!(ls.starts_with("bank: 1 keyspace, 1 kept snapshot") && ls.contains("retains 2 versions"), "{ls}");
    assert_eq!(ls, text("store ls a.pool --store bank"));
    assert_eq!(workspace.run("store snapshot list a.pool --json").ok().json()[0]["name"], "monday");
    workspace.run("store get a.pool accounts eve").fails_with("eve of the keyspace accounts has no value");
    workspace.run("store get a.pool prices ann").fails_with("no keyspace \"prices\"; there is accounts");
    workspace
        .run("store get a.pool accounts ann --at friday")
        .fails_with("no snapshot is kept under the name");
    workspace.run("store ls a.pool --store shop").fails_with("no store \"shop\"; there is bank");
    let diff = text("store diff a.pool monday");
    assert_eq!(diff, "~ accounts\tann\t100\t70\n- accounts\teve\t5\n");
    workspace.run("store diff a.pool monday --keyspace prices").fails_with("there is accounts");
    workspace.run("store diff a.pool friday").fails_with("no snapshot is kept under the name");
}

#[test]
fn a_served_store_is_backed_up_beside_its_owner() {
    let workspace = Workspace::new();
    let pool = owner(&workspace);
    let serving = serve(&workspace, &pool);
    let [whole, difference] = ["a.pool served.1 --at monday", "a.pool served.2 --since monday"]
        .map(|what| workspace.run(&format!("store backup {what} --json")).ok().json());
    assert_eq!((&whole["changes"], &difference["changes"]), (&json!(3), &json!(2)));
    assert_eq!(whole["snapshot"], difference["since"]);
    workspace
        .run("store backup a.pool served.3 --at friday")
        .fails_with("no snapshot is kept under the name");
    assert!(!workspace.path("served.3").exists());
    drop(serving);
    let bank = pool.open_store("bank").unwrap();
    let number = bank.snapshot().number();
    drop((bank, pool));
    // The same bytes as without another process.
    workspace.run("store backup a.pool own.1 --at monday").ok();
    workspace.run(&format!("store backup a.pool own.2 --since monday --at {number}")).ok();
    for i in 1..=2 {
        let read = |of: &str| std::fs::read(workspace.path(&format!("{of}.{i}"))).unwrap();
        assert!(read("served") == read("own"), "backup {i}");
    }
}

#[test]
fn a_served_store_is_changed_by_its_owner() {
    let workspace = Workspace::new();
    let pool = owner(&workspace);
    let _serving = serve(&workspace, &pool);
    let number = workspace.run("store put a.pool accounts dan 1 --json").ok().json();
    let store = pool.open_store("bank").unwrap();
    assert_eq!(number["snapshot"], store.snapshot().number());
    let accounts = store.keyspace("accounts").unwrap();
    assert_eq!(store.get(&accounts, "dan").unwrap().as_deref(), Some(&b"1"[..]));
    workspace.run("store put a.pool prices lamp 30").ok();
    assert_eq!(store.keyspaces().unwrap(), ["accounts", "prices"]);
    workspace.run("store del a.pool accounts dan").ok();
    workspace.run("store del a.pool accounts dan").fails_with("has no value");
    workspace.run("store snapshot keep a.pool friday").ok();
    workspace.run("store snapshot keep a.pool friday").fails_with("\"friday\" already");
    workspace.run("store snapshot delete a.pool monday").ok();
    assert_eq!(store.kept().unwrap().len(), 1);
}

#[test]
fn a_snapshot_is_checked_wherever_its_pool_is_open() {
    let workspace = Workspace::new();
    let pool = owner(&workspace);
    let serving = serve(&workspace, &pool);
    let monday = workspace.run("check a.pool --snapshot monday --json").ok().json();
    assert_eq!(
        (&monday["ok"], &monday["keys"], &monday["keyspaces"], &monday["bytes"]),
        (&true.into(), &3.into(), &1.into(), &15.into())
    );
    assert_eq!(monday["read_by"], std::process::id());
    let now = workspace.run("check a.pool --snapshot").ok().text();
    assert!(
        now.starts_with("a.pool: the snapshot is undamaged\n") && now.contains("keys       2\n"),
        "{now}"
    );
    workspace.run("check a.pool --snapshot friday").ends_with(5, "no snapshot is kept under the name");
    workspace.run("check a.pool").ends_with(4, "`tembo check --snapshot`");
    drop((serving, pool));
    let alone = workspace.run("check a.pool --snapshot monday --json").ok().json();
    assert_eq!((&alone["keys"], alone.get("read_by")), (&3.into(), None));
    workspace.run("check a.pool --store bank").ends_with(2, "--snapshot");
}

#[test]
fn info_says_what_the_owner_tells_or_who_it_is() {
    let workspace = Workspace::new();
    let pool = owner(&workspace);
    let this = format!("in use by process {} (", std::process::id());
    for command in ["info a.pool", "store ls a.pool", "store put a.pool accounts a b"] {
        workspace.run(command).fails_with(&this).fails_with("Pool::serve_stores");
    }
    let serving = serve(&workspace, &pool);
    let info = workspace.run("info a.pool").ok().text();
    assert!(info.contains(&format!("in use by  process {} (", std::process::id())), "{info}");
    assert!(info.contains("served at  a.pool.sock\n") && info.contains("store   bank: 1 keyspace"), "{info}");
    let json = workspace.run("info a.pool --json").ok().json();
    assert_eq!(json["stores"][0]["keyspaces"], json!([{"name": "accounts", "retains": "2 versions"}]));
    std::os::unix::fs::symlink("a.pool", workspace.path("link.pool")).unwrap();
    workspace.run("info link.pool").ok();
    // These need the pool, and say which do not.
    std::fs::write(workspace.path("1.backup"), "").unwrap();
    for command in ["store restore a.pool 1.backup --store copy", "store import a.pool"] {
        workspace.run(command).fails_with(&this).fails_with("`tembo info`, `tembo check --snapshot`");
    }
    drop(serving);
    // A killed process leaves files that belong to nobody.
    drop(std::os::unix::net::UnixListener::bind(workspace.path("a.pool.sock")).unwrap());
    workspace.run("info a.pool").fails_with(&this).fails_with("a.pool.sock");
    drop(pool);
    workspace.run("info a.pool").ok();
}

/// A server for Redis clients has the pool, and once asked to it serves its stores as well.
#[test]
fn a_server_serves_stores_beside_redis_if_it_is_told_to() {
    let workspace = Workspace::new();
    drop(owner(&workspace));
    let socket = workspace.path("a.pool.sock");
    let silent = Server::start(&workspace, "--pool a.pool");
    let line =
        |server: &Server| server.greeting.lines().find(|line| line.contains("stores")).map(str::to_owned);
    assert!(line(&silent).unwrap().contains("bank; not served: --stores serves them"), "{}", silent.greeting);
    assert!(!socket.exists());
    workspace.run("store get a.pool accounts ann").fails_with("`tembo serve --stores`");
    silent.stop();

    let server = Server::start(&workspace, "--pool a.pool --stores");
    assert!(line(&server).unwrap().contains("bank; served at a.pool.sock"), "{}", server.greeting);
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    for round in 0..20 {
        server.ask(&format!("SET key {round}"), "+OK\r\n");
        workspace.run(&format!("store put a.pool accounts ann {round}")).ok();
        server.ask("GET key", &format!("${}\r\n{round}\r\n", round.to_string().len()));
        assert_eq!(workspace.run("store get a.pool accounts ann").ok().text(), format!("{round}\n"));
    }
    assert_eq!(workspace.run("store get a.pool accounts ann --at monday").ok().text(), "100\n");
    workspace.run("check a.pool --snapshot monday").ok();
    let info = workspace.run("info a.pool").ok().text();
    assert!(info.contains(&format!("in use by  process {} (", server.child.id())), "{info}");

    // Acknowledged writes of either side survive, and the socket that stays is replaced.
    server.kill();
    assert!(socket.exists());
    workspace.run("check a.pool").ok();
    let server = Server::start(&workspace, "--pool a.pool --stores");
    server.ask("GET key", "$2\r\n19\r\n");
    assert_eq!(workspace.run("store get a.pool accounts ann").ok().text(), "19\n");
    server.stop();
    assert!(!socket.exists());
}

/// Versions older than the window of their keyspace are collected while no client commits.
#[test]
fn a_server_collects_in_the_stores_that_it_serves() {
    let workspace = Workspace::new();
    let pool = owner(&workspace);
    let bank = pool.open_store("bank").unwrap();
    let prices = bank.keyspace_with("prices", Retention::For(Duration::from_secs(1))).unwrap();
    ["1", "2", "3"].iter().for_each(|value| _ = bank.put(&prices, "bread", value).unwrap());
    drop((prices, bank, pool));
    let server = Server::start(&workspace, "--pool a.pool --stores");
    let end = Instant::now() + Duration::from_secs(20);
    while workspace.run("store history a.pool prices bread").ok().text().lines().count() > 1 {
        assert!(Instant::now() < end, "the versions are still there");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(workspace.run("store get a.pool prices bread").ok().text(), "3\n");
    server.stop();
}

#[test]
fn a_server_of_a_pool_without_stores_says_nothing_of_them_unless_asked() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "--pool a.pool");
    assert!(!server.greeting.contains("stores"), "{}", server.greeting);
    server.stop();
    let server = Server::start(&workspace, "--pool a.pool --stores");
    assert!(server.greeting.contains("none yet; served at a.pool.sock"), "{}", server.greeting);
    workspace.run("store ls a.pool").ok();
    server.stop();
    std::fs::create_dir(workspace.path("a.pool.sock")).unwrap();
    workspace.run("serve --pool a.pool --stores --listen 127.0.0.1:0").fails_with("a.pool.sock");
}

/// Commits of the server's thread and of the threads of two stores' clients, each on its own lane, until
/// kill -9.
#[test]
fn writers_of_redis_and_of_a_store_work_at_once() {
    const BATCHES: usize = 60;
    const SETS: usize = 50;
    const TRANSFERS: i64 = 300;
    let workspace = Workspace::new();
    drop(owner(&workspace));
    let server = Server::start(&workspace, "--pool a.pool --stores --durability emulated");
    let (port, socket) = (server.port, workspace.path("a.pool.sock"));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let mut replies = vec![0; SETS * 5];
            for batch in 0..BATCHES {
                let sets = (0..SETS).map(|i| format!("SET key{} {batch}\r\n", batch * SETS / 2 + i));
                stream.write_all(sets.collect::<String>().as_bytes()).unwrap();
                stream.read_exact(&mut replies).unwrap();
                assert_eq!(replies, b"+OK\r\n".repeat(SETS));
            }
        });
        for (from, to) in [("ann", "bob"), ("bob", "ann")] {
            let socket = &socket;
            scope.spawn(move || {
                let store = RemoteStore::connect(socket, "bank").unwrap();
                let accounts = store.keyspace("accounts").unwrap();
                for _ in 0..TRANSFERS {
                    let change = |value: Option<Vec<u8>>, by: i64| {
                        let text = String::from_utf8(value.unwrap()).unwrap();
                        (text.parse::<i64>().unwrap() + by).to_string()
                    };
                    let transfer = store.transact(|tx| {
                        let (less, more) = (tx.get(&accounts, from)?, tx.get(&accounts, to)?);
                        tx.put(&accounts, from, change(less, -1))?;
                        tx.put(&accounts, to, change(more, 1))
                    });
                    transfer.unwrap();
                }
            });
        }
    });
    server.kill();
    workspace.run("check a.pool").ok();
    // As many one way as the other.
    assert_eq!(workspace.run("store scan a.pool accounts").ok().text(), "ann\t70\nbob\t20\n");
    let server = Server::start(&workspace, "--pool a.pool");
    server.ask("DBSIZE", &format!(":{}\r\n", BATCHES * SETS / 2 + SETS / 2));
    server.stop();
}
