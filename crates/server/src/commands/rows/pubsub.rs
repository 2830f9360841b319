//! Rows of the command table: those of [`super::super::pubsub`].

use crate::commands::table::Command;
use crate::commands::table::flag::{
    AFTER_COMMIT, FAST, FOR_SUBSCRIBERS, LOADING, NOSCRIPT, NOT_KEYS, PUBSUB, STALE, UNSUBSCRIBES,
};

const SUBSCRIBE: u32 = PUBSUB | NOSCRIPT | LOADING | STALE | FOR_SUBSCRIBERS;
const UNSUBSCRIBE: u32 = SUBSCRIBE | UNSUBSCRIBES;
const PUBLISH: u32 = PUBSUB | LOADING | STALE | FAST | AFTER_COMMIT;
const ASK: u32 = PUBSUB | LOADING | STALE;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("subscribe", -2, SUBSCRIBE).doc("pubsub", "2.0.0", "Subscribes to channels"),
    Command::new("psubscribe", -2, SUBSCRIBE).doc(
        "pubsub",
        "2.0.0",
        "Subscribes to all channels that match patterns",
    ),
    Command::new("ssubscribe", -2, SUBSCRIBE | NOT_KEYS).keys(1, -1, 1).doc(
        "pubsub",
        "7.0.0",
        "Subscribes to channels of a shard",
    ),
    Command::new("unsubscribe", -1, UNSUBSCRIBE).doc("pubsub", "2.0.0", "Ends subscriptions to channels"),
    Command::new("punsubscribe", -1, UNSUBSCRIBE).doc("pubsub", "2.0.0", "Ends subscriptions to patterns"),
    Command::new("sunsubscribe", -1, UNSUBSCRIBE | NOT_KEYS).keys(1, -1, 1).doc(
        "pubsub",
        "7.0.0",
        "Ends subscriptions to channels of a shard",
    ),
    Command::new("publish", 3, PUBLISH).doc(
        "pubsub",
        "2.0.0",
        "Sends a message to the subscribers of a channel",
    ),
    Command::new("spublish", 3, PUBLISH | NOT_KEYS).keys(1, 1, 1).doc(
        "pubsub",
        "7.0.0",
        "Sends a message to the subscribers of a shard's channel",
    ),
    Command::new("pubsub", -2, 0).doc("pubsub", "2.8.0", "Tells about subscriptions").subcommands(&[
        Command::new("pubsub|channels", -2, ASK).doc(
            "pubsub",
            "2.8.0",
            "Returns the channels that have subscribers",
        ),
        Command::new("pubsub|numsub", -2, ASK).doc(
            "pubsub",
            "2.8.0",
            "Returns how many have subscribed to each channel",
        ),
        Command::new("pubsub|numpat", 2, ASK).doc(
            "pubsub",
            "2.8.0",
            "Returns how many patterns have subscribers",
        ),
        Command::new("pubsub|shardchannels", -2, ASK).doc(
            "pubsub",
            "7.0.0",
            "Returns the channels of shards that have subscribers",
        ),
        Command::new("pubsub|shardnumsub", -2, ASK).doc(
            "pubsub",
            "7.0.0",
            "Returns how many have subscribed to each channel of a shard",
        ),
        Command::new("pubsub|help", 2, LOADING | STALE).doc("pubsub", "6.2.0", "Explains the subcommands"),
    ]),
];
