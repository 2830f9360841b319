//! The cells that the world is divided into, and the scores that stand for them.
//!
//! ```text
//!   step 1, latitude  1  01 11        a cell's number has the bits of its two indexes by turns, those of the
//!                     0  00 10        longitude first; the cells of the next step are quarters of these
//!        longitude       0  1
//! ```
//!
//! A position's score is the number of its cell of step 26, 52 bits, which a double holds exactly. The
//! members within a cell of an earlier step are those with a range of scores. The latitudes end where a
//! Mercator map of the world is a square.

use std::ops::Range;

/// The finest step.
const STEP_MAX: u32 = 26;
/// The valid longitudes.
const LONGITUDES: [f64; 2] = [-180.0, 180.0];
/// The valid latitudes.
const LATITUDES: [f64; 2] = [-85.051_128_78, 85.051_128_78];
/// The latitudes of an ordinary geohash.
const LATITUDES_OF_GEOHASH: [f64; 2] = [-90.0, 90.0];
/// The digits of a geohash.
const DIGITS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
/// Digits that are shown, of which the 52 bits fill the first ten.
const DIGITS_SHOWN: u32 = 11;

/// A place, in degrees.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Position {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

impl Position {
    /// A place that can have a score.
    pub(super) fn is_valid(self) -> bool {
        let is_in = |[low, high]: [f64; 2], number| (low..=high).contains(&number);
        is_in(LONGITUDES, self.longitude) && is_in(LATITUDES, self.latitude)
    }

    pub(super) fn score(self) -> f64 {
        Cell::of(self, STEP_MAX).number() as f64
    }

    /// The middle of the cell that a score stands for. Any score of a sorted set stands for some place.
    pub(super) fn of_score(score: f64) -> Self {
        let number = whole(score);
        let cell = Cell { longitude: gather(number >> 1), latitude: gather(number), step: STEP_MAX };
        let middle = |[low, high]: [f64; 2], [min, max]: [f64; 2]| ((low + high) / 2.0).clamp(min, max);
        let area = cell.area();
        Position { longitude: middle(area.longitude, LONGITUDES), latitude: middle(area.latitude, LATITUDES) }
    }

    /// The place as an ordinary geohash, whose latitudes go to the poles.
    pub(super) fn geohash(self) -> Vec<u8> {
        let number = Cell {
            longitude: index(self.longitude, LONGITUDES, STEP_MAX),
            latitude: index(self.latitude, LATITUDES_OF_GEOHASH, STEP_MAX),
            step: STEP_MAX,
        }
        .number();
        let digit = |nth| match (2 * STEP_MAX).checked_sub(5 * (nth + 1)) {
            Some(shift) => DIGITS[(number >> shift & 31) as usize],
            None => DIGITS[0],
        };
        (0..DIGITS_SHOWN).map(digit).collect()
    }
}

/// The integer that a processor makes of a double, also if the double is no number: scores can be anything.
fn whole(score: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    let signed = |number: f64| {
        let fits = (-HALF..HALF).contains(&number);
        if fits { number as i64 as u64 } else { 1 << 63 }
    };
    if score < HALF { signed(score) } else { signed(score - HALF) ^ 1 << 63 }
}

/// A part of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    /// From the west. A place at the eastern end is in a cell beyond the last.
    longitude: u32,
    /// From the south.
    latitude: u32,
    /// How often the world is cut in half in each direction; from 1 to 26.
    step: u32,
}

/// The degrees at the ends of a cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) longitude: [f64; 2],
    pub(super) latitude: [f64; 2],
}

/// Where a number lies among this many equal parts of a range.
fn index(number: f64, [min, max]: [f64; 2], step: u32) -> u32 {
    ((number - min) / (max - min) * (1_u64 << step) as f64) as u32
}

impl Cell {
    pub(super) fn of(position: Position, step: u32) -> Self {
        Cell {
            longitude: index(position.longitude, LONGITUDES, step),
            latitude: index(position.latitude, LATITUDES, step),
            step,
        }
    }

    fn number(self) -> u64 {
        spread(self.latitude) | spread(self.longitude) << 1
    }

    /// The scores of the places within.
    pub(super) fn scores(self) -> Range<f64> {
        let unused = 2 * (STEP_MAX - self.step);
        (self.number() << unused) as f64..((self.number() + 1) << unused) as f64
    }

    pub(super) fn area(self) -> Area {
        let part = |index: u32, [min, max]: [f64; 2]| {
            min + (f64::from(index) / (1_u64 << self.step) as f64) * (max - min)
        };
        let ends = |index: u32, range| [part(index, range), part(index.wrapping_add(1), range)];
        Area { longitude: ends(self.longitude, LONGITUDES), latitude: ends(self.latitude, LATITUDES) }
    }

    /// The cell `east` steps to the east and `north` steps to the north of this one. The world has no ends:
    /// the last cell is beside the first.
    pub(super) fn beside(self, east: i32, north: i32) -> Self {
        let moved = |index: u32, by: i32| match by {
            0 => index,
            by => index.wrapping_add_signed(by) & ((1 << self.step) - 1),
        };
        Cell { longitude: moved(self.longitude, east), latitude: moved(self.latitude, north), ..self }
    }
}

/// Puts the bits of a number into every other place.
fn spread(number: u32) -> u64 {
    let steps = [
        (16, 0x0000_FFFF_0000_FFFF),
        (8, 0x00FF_00FF_00FF_00FF),
        (4, 0x0F0F_0F0F_0F0F_0F0F),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ];
    steps.into_iter().fold(number.into(), |number, (shift, mask)| (number | number << shift) & mask)
}

/// Takes every other bit, beginning with the lowest.
fn gather(number: u64) -> u32 {
    let steps = [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0F0F_0F0F_0F0F_0F0F),
        (4, 0x00FF_00FF_00FF_00FF),
        (8, 0x0000_FFFF_0000_FFFF),
        (16, 0x0000_0000_FFFF_FFFF),
    ];
    let number = number & 0x5555_5555_5555_5555;
    steps.into_iter().fold(number, |number, (shift, mask)| (number | number >> shift) & mask) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_spread_and_gathered() {
        for number in [0, 1, 2, 0x8000_0001, 0xDEAD_BEEF, u32::MAX] {
            let bit_by_bit = (0..32).map(|bit| u64::from(number >> bit & 1) << (2 * bit)).sum::<u64>();
            assert_eq!(spread(number), bit_by_bit);
            assert_eq!(gather(spread(number) | spread(!number) << 1), number);
        }
    }

    #[test]
    fn a_place_is_near_the_one_that_its_score_stands_for() {
        for (longitude, latitude, score, geohash) in [
            (13.361389, 38.115556, 3_479_099_956_230_698.0, &b"sqc8b49rny0"[..]),
            (15.087269, 37.502669, 3_479_447_370_796_909.0, b"sqdtr74hyu0"),
        ] {
            let position = Position { longitude, latitude };
            assert_eq!(position.score(), score);
            let near = Position::of_score(score);
            assert!((near.longitude - longitude).abs() < 6e-6 && (near.latitude - latitude).abs() < 3e-6);
            assert_eq!(near.geohash(), geohash);
        }
    }

    #[test]
    fn neighbours_are_found_across_the_ends_of_the_world() {
        let east = Cell::of(Position { longitude: 179.9, latitude: 0.1 }, 3);
        assert_eq!(east.beside(1, 0), Cell::of(Position { longitude: -179.9, latitude: 0.1 }, 3));
        assert_eq!(east.beside(1, 0).beside(-1, 0), east);
        let south = Cell::of(Position { longitude: 0.0, latitude: -85.0 }, 26);
        assert_eq!(south.beside(0, -1).beside(0, 1), south);
    }

    #[test]
    fn every_score_stands_for_a_place() {
        let scores =
            [0.0, -1.0, 0.5, 1e15, 4.6e15, 1e18, 1e19, 1e300, -1e300, f64::INFINITY, f64::NEG_INFINITY];
        for score in scores {
            assert!(Position::of_score(score).is_valid(), "{score}");
        }
    }
}
