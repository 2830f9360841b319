//! Objects in ordinary memory, named by numbers, made and freed by hand.

use std::ops::{Index, IndexMut};

/// A vector of objects, with those that are free.
#[derive(Debug)]
pub(super) struct Arena<T> {
    objects: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Arena { objects: Vec::new(), free: Vec::new() }
    }
}

impl<T> Arena<T> {
    pub(super) fn make(&mut self, object: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.objects[number as usize] = object;
                number
            }
            None => {
                self.objects.push(object);
                self.objects.len() as u32 - 1
            }
        }
    }

    pub(super) fn free(&mut self, number: u32) {
        self.free.push(number);
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;
    fn index(&self, number: u32) -> &T {
        &self.objects[number as usize]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.objects[number as usize]
    }
}
