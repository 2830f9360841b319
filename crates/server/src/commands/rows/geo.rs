//! Rows of the command table: those of [`super::super::geo`].

use crate::commands::table::Command;
use crate::commands::table::flag::{DENYOOM, MOVABLE_KEYS, READONLY, WRITE};

const CHANGE: u32 = WRITE | DENYOOM;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("geoadd", -5, CHANGE).keys(1, 1, 1).doc(
        "geo",
        "3.2.0",
        "Adds places to a sorted set, or gives members other places",
    ),
    Command::new("geodist", -4, READONLY).keys(1, 1, 1).doc(
        "geo",
        "3.2.0",
        "Returns the distance of two members",
    ),
    Command::new("geohash", -2, READONLY).keys(1, 1, 1).doc(
        "geo",
        "3.2.0",
        "Returns the places of members as geohashes",
    ),
    Command::new("geopos", -2, READONLY).keys(1, 1, 1).doc(
        "geo",
        "3.2.0",
        "Returns the longitudes and latitudes of members",
    ),
    Command::new("geosearch", -7, READONLY).keys(1, 1, 1).doc(
        "geo",
        "6.2.0",
        "Returns the members within a circle or a rectangle",
    ),
    Command::new("geosearchstore", -8, CHANGE).keys(1, 2, 1).doc(
        "geo",
        "6.2.0",
        "Stores the members within a circle or a rectangle",
    ),
    Command::new("georadius", -6, CHANGE | MOVABLE_KEYS).keys(1, 1, 1).doc(
        "geo",
        "3.2.0",
        "Returns or stores the members within a circle around a place",
    ),
    Command::new("georadiusbymember", -5, CHANGE | MOVABLE_KEYS).keys(1, 1, 1).doc(
        "geo",
        "3.2.0",
        "Returns or stores the members within a circle around a member",
    ),
    Command::new("georadius_ro", -6, READONLY).keys(1, 1, 1).doc(
        "geo",
        "3.2.10",
        "Returns the members within a circle around a place",
    ),
    Command::new("georadiusbymember_ro", -5, READONLY).keys(1, 1, 1).doc(
        "geo",
        "3.2.10",
        "Returns the members within a circle around a member",
    ),
];
