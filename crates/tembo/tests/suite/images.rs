//! Images of pools with anything changed in them: seconds of what the fuzzing target `open_image` does for
//! hours.
#![forbid(unsafe_code)]

mod properties;

/// Numbers from a seed (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// How many images are tried; `TEMBO_IMAGES` comes before this.
const IMAGES: u64 = 250;

fn images() -> u64 {
    std::env::var("TEMBO_IMAGES").ok().and_then(|count| count.parse().ok()).unwrap_or(IMAGES)
}

#[test]
fn a_valid_image_is_whole_after_everything() {
    let image = properties::valid_image();
    properties::exercise(&image);
}

#[test]
fn changed_images_are_refused_or_used_without_a_panic() {
    let image = properties::valid_image();
    for seed in 0..images() {
        let mut numbers = Numbers(seed);
        let changes = 1 + numbers.next() % if seed % 2 == 0 { 3 } else { 60 };
        let words = changes * 2;
        let data: Vec<u8> = (0..words).flat_map(|_| numbers.next().to_le_bytes()).collect();
        let mut changed = image.clone();
        properties::mutate(&mut changed, &data);
        let outcome = std::panic::catch_unwind(|| properties::exercise(&changed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

#[test]
fn arbitrary_bytes_are_refused() {
    let mut numbers = Numbers(7);
    let image = properties::valid_image();
    for length in [0, 1, 7, 8, 100, 4095, 4096, 5000, 70_000] {
        let mut bytes: Vec<u8> = (0..length).map(|_| numbers.next() as u8).collect();
        properties::exercise(&bytes);
        let head = length.min(4096);
        bytes[..head].copy_from_slice(&image[..head]);
        properties::exercise(&bytes);
    }
}
