//! Objects that lead to others, and their fields.

use crate::{Node, NodeFields, NodePrivateFields, Root, RootPrivateFields, account, with_heap};
use tembo_heap::{PRc, PWeak, Persist};

#[test]
fn an_object_leads_to_another() {
    with_heap::<Root>(|heap| {
        heap.write(|tx, root| {
            let (top, left) = (tx.alloc(Node::new(5))?, tx.alloc(Node::new(3))?);
            tx.link(top.left(), left)?;
            tx.link_weak(left.parent(), top)?;
            tx.link(root.first(), top)
        })?;
        heap.read(|tx, root| {
            let top = tx.load(root.first())?.unwrap();
            let left = tx.load(top.left())?.unwrap();
            assert_eq!((tx.get(top.key())?, tx.get(left.key())?), (5, 3));
            assert_eq!(tx.upgrade(left.parent())?, Some(top));
            assert_eq!(tx.load(left.left())?, None);
            Ok(())
        })
    });
}

#[test]
fn a_field_is_read_set_and_borrowed() {
    with_heap::<Root>(|heap| {
        heap.write(|tx, root| {
            tx.set(root.count(), 1)?;
            *tx.get_mut(root.count())? += 1;
            let mut count = tx.get_mut(root.count())?;
            *count += 1;
            assert_eq!(*count, 3);
            drop(count);
            assert_eq!(tx.get(root.count())?, 3);
            Ok(())
        })
    });
}

#[derive(Default, Persist)]
#[repr(C)]
struct Forest {
    tallest: PRc<Node>,
    seen: PWeak<Node>,
}

#[test]
fn dead_objects_take_what_they_own_along() {
    with_heap::<Forest>(|heap| {
        heap.write(|tx, root| {
            let (top, left) = (tx.alloc(Node::new(5))?, tx.alloc(Node::new(3))?);
            tx.link(top.left(), left)?;
            tx.link(root.tallest(), top)?;
            tx.link_weak(root.seen(), left)
        })?;
        let is_seen = || heap.read(|tx, root| Ok(tx.upgrade(root.seen())?.is_some()));
        assert!(is_seen()?);
        heap.write(|tx, root| tx.link(root.tallest(), None))?;
        heap.collect()?;
        assert!(!is_seen()?, "only the top kept it alive");
        Ok(())
    });
}

#[test]
fn fields_of_a_type_with_pointers_are_reached_one_by_one() {
    with_heap::<Root>(|heap| {
        heap.write(|tx, root| {
            let node = tx.alloc(Node::new(4))?;
            tx.link(root.first(), node)?;
            let first = tx.load(root.first())?;
            tx.link(root.second(), first)?;
            tx.put(*root, Root { count: 9, ..Root::default() })?;
            assert_eq!((tx.get(root.count())?, tx.load(root.second())?), (9, None));
            Ok(())
        })
    });
}

#[test]
fn pointers_are_exchanged_by_linking() {
    with_heap::<Root>(|heap| {
        heap.write(|tx, root| {
            let (one, two) = (tx.alloc(Node::new(1))?, tx.alloc(Node::new(2))?);
            tx.link(root.first(), one)?;
            tx.link(root.second(), two)?;
            Ok(())
        })?;
        heap.write(|tx, root| {
            let (first, second) = (tx.load(root.first())?, tx.load(root.second())?);
            tx.link(root.first(), second)?;
            tx.link(root.second(), first)
        })?;
        heap.read(|tx, root| {
            let (first, second) = (tx.load(root.first())?.unwrap(), tx.load(root.second())?.unwrap());
            assert_eq!((tx.get(first.key())?, tx.get(second.key())?), (2, 1));
            Ok(())
        })
    });
}

#[test]
fn fields_are_reached_by_those_who_see_them() {
    use account::{Account, AccountCrateFields, AccountFields, AccountSuperFields};
    with_heap::<Account>(|heap| {
        heap.write(|tx, account| {
            tx.set(account.owner(), 7)?;
            tx.set(account.branch(), 1)?;
            tx.set(account.limit(), -100)?;
            assert_eq!(account::pay(tx, account, 30)?, -30);
            Ok(())
        })
    });
}
