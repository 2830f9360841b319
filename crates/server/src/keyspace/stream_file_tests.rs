//! The backlog's file beside a model, through kills and failures of power.

use std::io;
use std::sync::{Arc, Mutex};

use super::stream_file::{BLOCK, Extent, Medium, StreamFile};
use crate::random::Random;

const SECTOR: usize = 512;

/// A file whose sectors reach the device in any order, if nobody synchronises it.
#[derive(Default)]
struct Disk {
    cache: Vec<u8>,
    device: Vec<u8>,
    /// Sectors of the cache that the device may lack.
    changed: Vec<usize>,
    /// Bytes from which on the disk is full.
    room: Option<u64>,
    /// Nothing that is synchronised reaches the device.
    fails: bool,
}

#[derive(Clone, Default)]
struct SharedDisk(Arc<Mutex<Disk>>);

impl Medium for SharedDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().cache.len() as u64)
    }

    fn read(&self, off: u64, into: &mut [u8]) -> io::Result<()> {
        let disk = self.0.lock().unwrap();
        let bytes = disk.cache.get(off as usize..off as usize + into.len());
        into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, off: u64, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        let end = off as usize + bytes.len();
        if disk.room.is_some_and(|room| end as u64 > room) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if disk.cache.len() < end {
            disk.cache.resize(end, 0);
        }
        disk.cache[off as usize..end].copy_from_slice(bytes);
        disk.changed.extend(off as usize / SECTOR..=(end - 1) / SECTOR);
        Ok(())
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.cache.truncate(len as usize);
        Ok(())
    }

    fn synchronise(&self) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        if disk.fails {
            return Err(io::Error::other("the device is gone"));
        }
        (disk.device, disk.changed) = (disk.cache.clone(), Vec::new());
        Ok(())
    }
}

impl SharedDisk {
    /// The power fails: some of the changed sectors are on the device, and a length of either.
    fn fail(&self, random: &mut Random) {
        let mut disk = self.0.lock().unwrap();
        let Disk { cache, device, changed, .. } = &mut *disk;
        let lengths = [cache.len(), device.len()];
        device.resize(lengths[0].max(lengths[1]), 0);
        for sector in changed.drain(..) {
            let end = ((sector + 1) * SECTOR).min(cache.len());
            if sector * SECTOR < end && random.below(2) == 0 {
                device[sector * SECTOR..end].copy_from_slice(&cache[sector * SECTOR..end]);
            }
        }
        device.truncate(lengths[random.below(2) as usize]);
        disk.cache = disk.device.clone();
    }
}

/// The whole stream, and what the pool has of its file.
struct Model {
    stream: Vec<u8>,
    pool: Option<(Extent, u64)>,
    /// The positions that a failure of power may leave: the last one that is durable, and all later ones.
    possible: Vec<Option<(Extent, u64)>>,
    /// Blocks may have been given up and written again since then.
    is_reused: bool,
}

impl Model {
    fn new() -> Model {
        Model { stream: Vec::new(), pool: None, possible: vec![None], is_reused: false }
    }
}

fn random_bytes(random: &mut Random, count: u64) -> Vec<u8> {
    (0..count).map(|_| random.next() as u8).collect()
}

fn open(disk: &SharedDisk, pool: Option<(Extent, u64)>, boot: &[u8]) -> StreamFile {
    let (extent, end) = pool.map_or((None, 0), |(extent, end)| (Some(extent), end));
    StreamFile::over(Box::new(disk.clone()), extent, end, boot).unwrap()
}

/// All bytes that the file has, which must be those of the stream.
fn kept(file: &StreamFile, model: &Model) -> u64 {
    let (first, end) = (file.extent().first, model.pool.map_or(0, |(_, end)| end));
    let mut found = Vec::new();
    assert_eq!(file.read(first, usize::MAX, &mut found).unwrap(), end);
    assert!(found == model.stream[first as usize..end as usize], "{first} to {end}");
    end - first
}

/// Steps of a server with a backlog of `max` bytes.
fn run(file: &mut StreamFile, model: &mut Model, max: u64, random: &mut Random) {
    for _ in 0..1 + random.below(19) {
        let most = [50, 3000, 70_000, 300_000][random.below(4) as usize];
        let count = 1 + random.below(most);
        let bytes = random_bytes(random, count);
        let start = model.pool.map_or(0, |(_, end)| end);
        let end = start + bytes.len() as u64;
        model.stream.truncate(start as usize);
        model.stream.extend_from_slice(&bytes);
        if random.below(40) == 0 {
            file.clear(start);
            model.is_reused = true;
        }
        let durable = model.possible[0].map_or(0, |(_, end)| end);
        model.is_reused |= end.saturating_sub(durable) > max;
        if file.append(end, &bytes, bytes.len()).is_err() {
            file.clear(end);
        }
        file.trim(end.saturating_sub(max), bytes.len());
        let is_committed = random.below(5) > 0;
        if is_committed {
            model.pool = Some((file.extent(), end));
            model.possible.push(model.pool);
        }
        file.note_end(is_committed);
        if random.below(4) == 0 {
            file.shared().synchronise();
            (model.possible, model.is_reused) = (vec![model.pool], false);
        }
        kept(file, model);
    }
}

/// A killed process loses no byte.
#[test]
fn a_kill_loses_nothing() {
    let mut random = Random::seeded(1);
    for round in 0..60 {
        let (disk, mut model) = (SharedDisk::default(), Model::new());
        let max = [1, 100_000, 500_000][round % 3];
        for _ in 0..6 {
            let mut file = open(&disk, model.pool, b"boot");
            let first = model.pool.map_or(0, |(extent, _)| extent.first);
            assert_eq!(file.extent().first, first, "round {round}");
            kept(&file, &model);
            run(&mut file, &mut model, max, &mut random);
            // The batch that was under way.
            let end = model.pool.map_or(0, |(_, end)| end);
            let _ = file.append(end + 100_000, &[7; 100_000], 0);
            file.trim(end, 100_000);
        }
        assert!(disk.len().unwrap() < 3_000_000 + 4 * max, "round {round}: space is used again");
    }
}

/// A failure of power leaves bytes of the stream, or none; and all of them if the journal was not ahead.
#[test]
fn a_failure_of_power_leaves_the_stream_or_nothing() {
    let mut random = Random::seeded(2);
    let (mut whole, mut dropped, mut shorter, mut synchronised) = (0, 0, 0, 0);
    for round in 0..400 {
        let (disk, mut model) = (SharedDisk::default(), Model::new());
        for boot in 0..4u8 {
            let mut file = open(&disk, model.pool, &[boot]);
            let first = model.pool.map_or(0, |(extent, _)| extent.first);
            match kept(&file, &model) {
                0 => dropped += 1,
                _ if file.extent().first == first => whole += 1,
                _ => shorter += 1,
            }
            model.pool = Some((file.extent(), model.pool.map_or(0, |(_, end)| end)));
            model.possible = vec![model.pool];
            run(&mut file, &mut model, 200_000, &mut random);
            let which = random.below(model.possible.len() as u64) as usize;
            model.pool = model.possible[which];
            disk.fail(&mut random);
            if let (0, false, Some((extent, end))) = (which, model.is_reused, model.pool)
                && extent.first < end
            {
                let found = open(&disk, model.pool, b"other");
                assert!(found.extent().first < end, "round {round}: it was synchronised");
                synchronised += 1;
            }
            (model.possible, model.is_reused) = (vec![model.pool], false);
        }
    }
    let counts = [whole, dropped, shorter, synchronised];
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
}

/// The checker of blocks: after a change of any byte that is kept, none before it is.
#[test]
fn a_changed_byte_is_noticed() {
    let mut random = Random::seeded(3);
    let stream = random_bytes(&mut random, 300_000);
    let disk = SharedDisk::default();
    let mut file = open(&disk, None, b"boot");
    file.append(300_000, &stream, 5).unwrap();
    file.note_end(true);
    assert_eq!(file.harmless_from(), 5);
    let pool = Some((file.extent(), 300_000));
    for _ in 0..300 {
        let at = (BLOCK + random.below(disk.len().unwrap() - BLOCK)) as usize;
        let change = |bits: u8| disk.0.lock().unwrap().cache[at] ^= bits;
        change(1 << (at % 8));
        let found = open(&disk, pool, b"other").extent().first;
        let block = (at as u64 - BLOCK) / BLOCK;
        assert!(found > block * (BLOCK - 16), "byte {at}: kept from {found} on");
        change(1 << (at % 8));
    }
    assert_eq!(open(&disk, pool, b"other").extent().first, 0);
}

/// The pool of another time has no part in a file that went on without it.
#[test]
fn a_copy_of_the_pool_finds_what_is_still_its_own() {
    let disk = SharedDisk::default();
    let mut file = open(&disk, None, b"boot");
    let commit = |file: &mut StreamFile, end: u64, byte: u8| {
        file.append(end, &vec![byte; 1000], 1000).unwrap();
        file.note_end(true);
        Some((file.extent(), end))
    };
    let copy = commit(&mut file, 1000, 1);
    let later = commit(&mut file, 2000, 2);
    let mut file = open(&disk, copy, b"boot");
    let third = commit(&mut file, 2000, 3);
    assert_eq!(open(&disk, later, b"boot").extent().first, 2000);
    assert_eq!(open(&disk, third, b"boot").extent().first, 0);
}

#[test]
fn a_full_disk_and_a_foreign_file_are_errors() {
    let disk = SharedDisk::default();
    let mut file = open(&disk, None, b"");
    disk.0.lock().unwrap().room = Some(3 * BLOCK);
    assert!(file.append(500_000, &[1; 500_000], 0).is_err());
    file.clear(500_000);
    file.note_end(true);
    assert_eq!(file.extent().first, 500_000);
    file.append(500_100, &[2; 100], 0).unwrap();
    file.note_end(true);
    let mut found = Vec::new();
    assert_eq!(file.read(500_000, usize::MAX, &mut found).unwrap(), 500_100);
    assert_eq!(found, [2; 100]);
    for foreign in [&b"my notes"[..], &[b'x'; 1000]] {
        let disk = SharedDisk::default();
        disk.write(0, foreign).unwrap();
        let error = StreamFile::over(Box::new(disk.clone()), None, 0, b"").err().unwrap();
        assert!(error.to_string().contains("is not a backlog"), "{error}");
        assert_eq!(disk.0.lock().unwrap().cache, foreign);
    }
}

/// The page cache may lose what the device refused, also in the same boot: no block is trusted after that.
#[test]
fn a_failed_synchronisation_drops_the_blocks_and_the_trust() {
    let disk = SharedDisk::default();
    let mut file = open(&disk, None, b"boot");
    file.append(300_000, &[5; 300_000], 0).unwrap();
    file.note_end(true);
    let pool = Some((file.extent(), 300_000));
    disk.0.lock().unwrap().fails = true;
    file.shared().synchronise();
    // A block in the middle, which an opening that trusts the file does not check.
    disk.0.lock().unwrap().cache[2 * BLOCK as usize + 100] = 6;
    assert!(open(&disk, pool, b"boot").extent().first >= 2 * (BLOCK - 16));
    assert!(file.append(300_100, &[5; 100], 0).is_err());
}
