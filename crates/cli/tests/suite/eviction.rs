//! A cache in a pool that is always full, through kill -9.

use std::process::Stdio;

use crate::memcached;
use crate::replica::{Client, Random};
use crate::serve::Server;
use crate::support::Workspace;
use tembo_wire::Value;

const KEYS: u64 = 60_000;
const COMMANDS_PER_LIFE: u64 = 12_000;

fn kills() -> u64 {
    // A tenth of those of other tests: each fills the cache anew. After the first one the cache was empty.
    let kills = std::env::var("TEMBO_KILLS");
    kills.map_or(5, |count| (count.parse::<u64>().expect("TEMBO_KILLS is a number") / 10).max(2))
}

/// A value that names its key and how often that was written.
fn value(key: u64, version: u64) -> String {
    format!("{key}:{version}:{}", "v".repeat(200 + (key % 900) as usize))
}

/// A key that is there has the value that was acknowledged last, or the one under way when the server was
/// killed. None is there beyond the limit.
#[test]
fn a_cache_has_whole_values_after_kill_9() {
    let workspace = Workspace::new();
    std::fs::write(workspace.path("cache.conf"), "maxmemory 16mb\nmaxmemory-policy allkeys-lru\n").unwrap();
    let mut random = Random(0x7e3b_0099);
    let mut versions = vec![0_u64; KEYS as usize];
    let mut evicted = 0;
    for life in 0..kills() {
        let mut command = workspace.command("serve --listen 127.0.0.1:0 --pool a.pool --config cache.conf");
        let server = Server::spawn(command.stderr(Stdio::null()));
        let mut client = Client::connect(server.port).unwrap();
        let mut found = 0;
        for key in 0..KEYS {
            // A look at each key would be a use of it.
            if life > 0 && random.below(20) == 0 && check(&mut client, key, versions[key as usize]) {
                found += 1;
            }
        }
        assert!(life == 0 || found > 20, "{found} keys of a twentieth are left after a kill");
        for _ in 0..COMMANDS_PER_LIFE {
            // Some keys are used much more than others.
            let bound = 1 + random.below(KEYS);
            let key = random.below(bound);
            let version = &mut versions[key as usize];
            let reply = client.call(&["SET", &format!("key:{key}"), &value(key, *version + 1)]);
            assert_eq!(reply, Value::Simple(b"OK".to_vec()), "life {life}");
            *version += 1;
        }
        evicted += client.info("evicted_keys").parse::<u64>().unwrap();
        let used: u64 = client.info("pool_bytes").parse().unwrap();
        assert!(used <= (16 << 20) * 3 / 2 + (16 << 20), "{used}");
        server.kill();
        workspace.run("check a.pool").ok();
    }
    assert!(kills() < 5 || evicted > 1000, "{evicted} keys were evicted");
}

/// The same of memcached's items.
#[test]
fn a_cache_has_whole_items_after_kill_9() {
    let workspace = Workspace::new();
    std::fs::write(workspace.path("cache.conf"), "maxmemory 16mb\nmaxmemory-policy allkeys-lru\n").unwrap();
    let serve = "serve --listen 127.0.0.1:0 --memcached 127.0.0.1:0 --pool a.pool --config cache.conf";
    let mut random = Random(0x11ce_5107);
    let mut versions = vec![0_u64; KEYS as usize];
    let mut evicted = 0;
    for life in 0..kills() {
        let server = Server::spawn(workspace.command(serve).stderr(Stdio::null()));
        let mut client = memcached::Client::of(&server);
        let mut found = 0;
        for key in (0..KEYS).filter(|_| life > 0 && random.below(20) == 0) {
            if let Some(item) = client.value(&format!("key:{key}")) {
                assert_eq!(item, value(key, versions[key as usize]), "key {key}");
                found += 1;
            }
        }
        assert!(life == 0 || found > 20, "{found} items of a twentieth are left after a kill");
        for _ in 0..COMMANDS_PER_LIFE {
            let bound = 1 + random.below(KEYS);
            let key = random.below(bound);
            let version = &mut versions[key as usize];
            let item = value(key, *version + 1);
            let reply = client.says(&format!("set key:{key} 0 0 {}\n{item}", item.len()));
            assert_eq!(reply, "STORED", "life {life}");
            *version += 1;
        }
        evicted += client.stat("evictions");
        server.kill();
        workspace.run("check a.pool").ok();
    }
    assert!(kills() < 5 || evicted > 1000, "{evicted} items were evicted");
}

/// Whether a key is there, which then has its last value.
fn check(client: &mut Client, key: u64, version: u64) -> bool {
    match client.call(&["GET", &format!("key:{key}")]) {
        Value::Null => false,
        Value::Bulk(found) => {
            assert_eq!(String::from_utf8(found).unwrap(), value(key, version), "key {key}");
            true
        }
        reply => panic!("{reply:?}"),
    }
}
