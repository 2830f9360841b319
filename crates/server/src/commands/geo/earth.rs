//! Distances on a sphere, and the cells that a search has to look into.

use super::cell::{Cell, Position};

/// In metres.
const RADIUS: f64 = 6_372_797.560856;
/// Half of the width of a Mercator map of the world, in metres.
const MAP_HALF: f64 = 20_037_726.37;
const RADIANS_PER_DEGREE: f64 = std::f64::consts::PI / 180.0;

fn radians(degrees: f64) -> f64 {
    degrees * RADIANS_PER_DEGREE
}

fn degrees(radians: f64) -> f64 {
    radians / RADIANS_PER_DEGREE
}

/// The distance of two places in metres, by the haversine formula. It can be NaN where they are opposite.
pub(super) fn distance(a: Position, b: Position) -> f64 {
    let (latitude_a, latitude_b) = (radians(a.latitude), radians(b.latitude));
    let v = ((radians(b.longitude) - radians(a.longitude)) / 2.0).sin();
    if v == 0.0 {
        return RADIUS * (latitude_b - latitude_a).abs();
    }
    let u = ((latitude_b - latitude_a) / 2.0).sin();
    2.0 * RADIUS * (u * u + latitude_a.cos() * latitude_b.cos() * v * v).sqrt().asin()
}

/// The shape that is searched, in metres.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Circle { radius: f64 },
    Rectangle { width: f64, height: f64 },
}

/// A shape around a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) center: Position,
    pub(super) shape: Shape,
}

/// The ends of a region, in degrees.
struct Bounds {
    west: f64,
    south: f64,
    east: f64,
    north: f64,
}

impl Region {
    /// How far a place is from the centre, in metres, if it is in the region.
    pub(super) fn distance_to(&self, place: Position) -> Option<f64> {
        let center = self.center;
        match self.shape {
            Shape::Circle { radius } => {
                let distance = distance(center, place);
                // A distance that is NaN counts as near, as in Redis.
                let is_outside = distance > radius;
                (!is_outside).then_some(distance)
            }
            Shape::Rectangle { width, height } => {
                let across = distance(place, Position { latitude: place.latitude, ..center });
                let along = distance(place, Position { longitude: place.longitude, ..center });
                let is_outside = across > width / 2.0 || along > height / 2.0;
                (!is_outside).then(|| distance(center, place))
            }
        }
    }

    fn bounds(&self) -> Bounds {
        let (width, height) = match self.shape {
            Shape::Circle { radius } => (radius, radius),
            Shape::Rectangle { width, height } => (width / 2.0, height / 2.0),
        };
        let Position { longitude, latitude } = self.center;
        let north = degrees(height / RADIUS);
        // The side that is nearer to a pole has more degrees.
        let edge = if latitude < 0.0 { latitude - north } else { latitude + north };
        let east = degrees(width / RADIUS / radians(edge).cos());
        Bounds {
            west: longitude - east,
            south: latitude - north,
            east: longitude + east,
            north: latitude + north,
        }
    }

    /// The distance to the farthest point.
    fn reach(&self) -> f64 {
        match self.shape {
            Shape::Circle { radius } => radius,
            Shape::Rectangle { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        }
    }

    /// The cells that the region is in: that of the centre, and those of its eight neighbours that matter, in
    /// Redis's order. The results of a search have this order if they are neither sorted nor counted.
    pub(super) fn cells(&self) -> Vec<Cell> {
        const NEIGHBOURS: [(i32, i32); 8] =
            [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let bounds = self.bounds();
        let mut step = step(self.reach(), self.center.latitude);
        let mut cell = Cell::of(self.center, step);
        if step > 1 && !reaches(cell, &bounds) {
            step -= 1;
            cell = Cell::of(self.center, step);
        }
        let area = cell.area();
        let matters = |&(east, north): &(i32, i32)| {
            // With very few cells a neighbour may be one on both sides.
            step < 2
                || !(north < 0 && area.latitude[0] < bounds.south
                    || north > 0 && area.latitude[1] > bounds.north
                    || east < 0 && area.longitude[0] < bounds.west
                    || east > 0 && area.longitude[1] > bounds.east)
        };
        let around = NEIGHBOURS.into_iter().filter(matters).map(|(east, north)| cell.beside(east, north));
        let mut around: Vec<_> = around.collect();
        around.dedup();
        around.insert(0, cell);
        around
    }
}

/// Whether a cell and its neighbours cover these bounds.
fn reaches(cell: Cell, bounds: &Bounds) -> bool {
    let [north, south] = [1, -1].map(|north| cell.beside(0, north).area().latitude);
    let [east, west] = [1, -1].map(|east| cell.beside(east, 0).area().longitude);
    let falls_short =
        north[1] < bounds.north || south[0] > bounds.south || east[1] < bounds.east || west[0] > bounds.west;
    !falls_short
}

/// The step whose cells are about as large as the searched area, larger near the poles.
fn step(reach: f64, latitude: f64) -> u32 {
    const STEP_MAX: i32 = 26;
    if reach == 0.0 {
        return STEP_MAX as u32;
    }
    let (mut step, mut reach) = (-1, reach);
    while reach < MAP_HALF {
        reach *= 2.0;
        step += 1;
    }
    let from_equator = latitude.abs();
    step -= i32::from(from_equator > 66.0) + i32::from(from_equator > 80.0);
    step.clamp(1, STEP_MAX) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_the_sphere() {
        let place = |longitude, latitude| Position { longitude, latitude };
        let palermo_to_catania = distance(place(13.361389, 38.115556), place(15.087269, 37.502669));
        assert!((palermo_to_catania - 166_274.15).abs() < 1.0, "{palermo_to_catania}");
        assert_eq!(distance(place(5.0, 5.0), place(5.0, 5.0)), 0.0);
        let around = distance(place(-180.0, 0.0), place(180.0, 0.0));
        assert!(around < 1e-8, "{around}");
    }

    /// Each place of a region must have a score in one of the cells, but for those that Redis, too, does not
    /// find: across the date line, and near the poles.
    #[test]
    fn the_cells_of_a_region_cover_it() {
        for (longitude, latitude) in [(0.0, 0.0), (13.4, 52.5), (-70.0, -33.0), (100.0, 64.0)] {
            for radius in [0.0, 0.5, 10.0, 5e3, 1e5, 1.2e6] {
                let center = Position { longitude, latitude };
                let region = Region { center, shape: Shape::Circle { radius } };
                let cells = region.cells();
                for (x, y) in (-20..=20).flat_map(|x| (-20..=20).map(move |y| (x, y))) {
                    let part = 1.2 * degrees(radius / RADIUS) / 20.0;
                    let place = Position {
                        longitude: longitude + f64::from(x) * part / radians(latitude).cos(),
                        latitude: latitude + f64::from(y) * part,
                    };
                    let is_covered = cells.iter().any(|cell| cell.scores().contains(&place.score()));
                    assert!(is_covered || region.distance_to(place).is_none(), "{region:?} {place:?}");
                }
            }
        }
    }
}
