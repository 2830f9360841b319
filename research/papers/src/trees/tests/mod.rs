//! Tests that need to see inside: each invariant's check notices a tree that breaks it, and slots are
//! repaired.

mod damage;
