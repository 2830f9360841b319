//! The failure model of sectors itself.

use super::*;
use std::collections::BTreeSet;
use tembo_pmem::journal::Medium as _;

#[test]
fn any_versions_of_sectors_come_together_and_a_synchronised_one_stays() {
    let disk = SectorDisk::new(vec![0; 4 * SECTOR_BYTES]);
    disk.write(0, &[1; SECTOR_BYTES]).unwrap();
    disk.synchronise().unwrap();
    disk.write(0, &[2]).unwrap();
    disk.write(SECTOR_BYTES as u64 - 1, &[3; 2]).unwrap();
    let history = disk.history();
    let mut cuts = PowerCuts::new(&history, 1);
    while cuts.step().is_some() {}
    let seen: BTreeSet<[u8; 3]> = (0..400)
        .map(|_| cuts.image())
        .map(|image| [image[0], image[SECTOR_BYTES - 1], image[SECTOR_BYTES]])
        .collect();
    let firsts = [(1, 1), (2, 1), (2, 3)];
    let all = firsts.iter().flat_map(|(a, b)| [0, 3].map(|c| [*a, *b, c])).collect();
    assert_eq!(seen, all);
}

#[test]
fn a_synchronised_range_stays_and_the_sectors_beside_it_are_as_open_as_before() {
    let disk = SectorDisk::new(vec![0; 3 * SECTOR_BYTES]);
    disk.write(0, &[1; 3 * SECTOR_BYTES]).unwrap();
    disk.synchronise_range(SECTOR_BYTES as u64 + 10, 5).unwrap();
    let history = disk.history();
    let mut cuts = PowerCuts::new(&history, 1);
    while cuts.step().is_some() {}
    let seen: BTreeSet<[u8; 3]> =
        (0..200).map(|_| cuts.image()).map(|image| [0, 1, 2].map(|i| image[i * SECTOR_BYTES])).collect();
    assert_eq!(seen, [[0, 1, 0], [0, 1, 1], [1, 1, 0], [1, 1, 1]].into());
}

#[test]
fn an_extended_file_has_either_length_until_all_of_it_is_synchronised() {
    let disk = SectorDisk::new(vec![1; SECTOR_BYTES]);
    disk.extend(2 * SECTOR_BYTES as u64).unwrap();
    disk.write(SECTOR_BYTES as u64, &[2]).unwrap();
    disk.synchronise_range(SECTOR_BYTES as u64, 1).unwrap();
    let lengths = |history: &History| -> BTreeSet<usize> {
        let mut cuts = PowerCuts::new(history, 1);
        while cuts.step().is_some() {}
        (0..100).map(|_| cuts.image().len()).collect()
    };
    assert_eq!(lengths(&disk.history()), [SECTOR_BYTES, 2 * SECTOR_BYTES].into());
    disk.synchronise().unwrap();
    assert_eq!(lengths(&disk.history()), [2 * SECTOR_BYTES].into());
    assert_eq!(lengths(&disk.history().without_durable_lengths()).len(), 2);
}

/// Later synchronisations leave out what the device missed, unless it is written again.
#[test]
fn after_a_failed_synchronisation_the_device_may_lack_what_the_page_cache_has() {
    let bytes = SECTOR_BYTES as u64;
    for drops in [false, true] {
        let mut seen = BTreeSet::new();
        for seed in 0..40 {
            let disk = SectorDisk::new(vec![0; 2 * SECTOR_BYTES]);
            disk.write(0, &[1; 2 * SECTOR_BYTES]).unwrap();
            disk.fail_synchronisation(seed, drops);
            assert!(disk.synchronise().is_err());
            disk.synchronise().unwrap();
            let (history, contents) = (disk.history(), disk.contents());
            let mut cuts = PowerCuts::new(&history, 1);
            while cuts.step().is_some() {}
            let image = cuts.image();
            assert!(if drops { contents == image } else { contents == [1; 2 * SECTOR_BYTES] });
            assert_eq!(cuts.killed_image(), contents);
            seen.insert((image[0], image[SECTOR_BYTES]));
            disk.write(bytes, &[2; SECTOR_BYTES]).unwrap();
            disk.synchronise().unwrap();
            let history = disk.history();
            let mut cuts = PowerCuts::new(&history, 1);
            while cuts.step().is_some() {}
            assert_eq!(cuts.image()[SECTOR_BYTES], 2);
        }
        assert_eq!(seen, [(0, 0), (0, 1), (1, 0), (1, 1)].into());
    }
}

#[test]
fn after_the_cut_nothing_is_done() {
    let disk = SectorDisk::new(vec![0; SECTOR_BYTES]);
    disk.cut_after(1);
    disk.write(0, &[1]).unwrap();
    assert!(disk.write(0, &[2]).is_err() && disk.synchronise().is_err());
    assert_eq!((disk.contents()[0], disk.history().events.len()), (1, 1));
    assert!(disk.read(511, &mut [0; 2]).is_err());
}

#[test]
fn synchronisations_are_left_out_by_what_they_are_for() {
    let disk = SectorDisk::new(vec![0; 4 * SECTOR_BYTES]);
    for off in [0, 512, 1024] {
        disk.write(off, &[1]).unwrap();
        disk.synchronise().unwrap();
        disk.mark(off);
    }
    let is_sync = |event: &&DiskEvent| matches!(event, DiskEvent::Synchronised(_));
    let left = disk.history().without_synchronisations_of(512..1024);
    assert_eq!(left.events.iter().filter(is_sync).count(), 2);
    let early = disk.history().with_early_marks();
    assert!(matches!(
        early.events[..3],
        [DiskEvent::Write { .. }, DiskEvent::Mark(0), DiskEvent::Synchronised(_)]
    ));
}

/// The first byte of each sector of every image that a power failure at the end may leave.
fn images(history: &History) -> BTreeSet<Vec<u8>> {
    let mut cuts = PowerCuts::new(history, 1);
    while cuts.step().is_some() {}
    (0..400).map(|_| cuts.image().into_iter().step_by(SECTOR_BYTES).collect()).collect()
}

/// A file with these sectors on the device.
fn disk_of(sectors: &[u8]) -> SectorDisk {
    SectorDisk::new(sectors.iter().flat_map(|byte| [*byte; SECTOR_BYTES]).collect())
}

const BYTES: u64 = SECTOR_BYTES as u64;

#[test]
fn a_hole_comes_early_or_late_sector_by_sector() {
    let disk = disk_of(&[1, 2, 3]);
    disk.write(BYTES, &[4; SECTOR_BYTES]).unwrap();
    disk.punch(BYTES, 2 * BYTES).unwrap();
    assert_eq!(disk.contents()[SECTOR_BYTES..], [0; 2 * SECTOR_BYTES]);
    let all = [2, 4, 0].into_iter().flat_map(|a| [3, 0].map(|b| vec![1, a, b])).collect();
    assert_eq!(images(&disk.history()), all);
    // The synchronisation of a range says nothing of holes.
    disk.synchronise_range(BYTES, 2 * BYTES).unwrap();
    assert_eq!(images(&disk.history()), all);
    // A later write into a hole stays.
    disk.write(BYTES, &[5; SECTOR_BYTES]).unwrap();
    disk.synchronise_range(BYTES, BYTES).unwrap();
    assert_eq!(images(&disk.history()), [vec![1, 5, 3], vec![1, 5, 0]].into());
    disk.synchronise().unwrap();
    assert_eq!(images(&disk.history()), [vec![1, 5, 0]].into());
}

#[test]
fn a_cut_comes_early_or_late_and_what_was_cut_off_may_be_zeros_before() {
    let disk = disk_of(&[1, 2]);
    disk.cut(BYTES).unwrap();
    assert_eq!(disk.contents().len(), SECTOR_BYTES);
    assert!(disk.write(BYTES, &[1]).is_err() && disk.read(BYTES, &mut [0]).is_err());
    disk.synchronise_range(0, 2 * BYTES).unwrap();
    let either = [vec![1], vec![1, 2], vec![1, 0]];
    assert_eq!(images(&disk.history()), either.clone().into());
    // The file grows again before the device knows that it was cut.
    disk.extend(3 * BYTES).unwrap();
    assert_eq!(disk.contents()[SECTOR_BYTES..], [0; 2 * SECTOR_BYTES]);
    let mut all = BTreeSet::from(either);
    all.extend([vec![1, 2, 0], vec![1, 0, 0]]);
    assert_eq!(images(&disk.history()), all);
    disk.synchronise().unwrap();
    assert_eq!(images(&disk.history()), [vec![1, 0, 0]].into());
    disk.cut(2 * BYTES).unwrap();
    disk.synchronise().unwrap();
    assert_eq!(images(&disk.history()), [vec![1, 0]].into());
}

#[test]
fn early_holes_and_cuts_come_before_the_write_back() {
    let disk = disk_of(&[1, 2]);
    for write in 0..4 {
        disk.write(0, &[write]).unwrap();
        disk.synchronise().unwrap();
    }
    disk.punch(BYTES, BYTES).unwrap();
    disk.cut(BYTES).unwrap();
    let at = |history: History, wanted: fn(&DiskEvent) -> bool| history.events.iter().position(wanted);
    let (hole, cut) =
        (|e: &DiskEvent| matches!(e, DiskEvent::Punched(_)), |e: &DiskEvent| matches!(e, DiskEvent::Cut(_)));
    assert_eq!((at(disk.history(), hole), at(disk.history().with_early_holes(), hole)), (Some(8), Some(3)));
    assert_eq!((at(disk.history(), cut), at(disk.history().with_early_cuts(), cut)), (Some(9), Some(3)));
}
