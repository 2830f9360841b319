//! The result of a check.

/// What there is in a heap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// How often the heap was opened for writing.
    pub generation: u64,
    /// By type, in the order in which the types came.
    pub types: Vec<TypeUsage>,
    /// Objects that only handles kept alive, when the heap was used last.
    pub orphans: u64,
    /// Objects that have died, and have not been released yet.
    pub dying: u64,
    /// Objects of which only the memory is left, for the weak pointers that lead to it.
    pub shells: u64,
    /// Objects that a migration which is not over has made new ones of.
    pub moved: u64,
    /// Circles of strong pointers that nothing else leads to: counting never finds them dead.
    pub circles: Vec<Circle>,
}

/// Objects that keep each other alive, while neither the root nor a handle leads to them. A weak pointer in place of one of the
/// circle's strong ones would let them die.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Circle {
    /// Where one of its objects lies.
    pub off: u64,
    /// Names of the types of its objects, in the order of the pointers; of a long one the first few.
    pub path: String,
    /// How many objects it keeps alive, its own among them.
    pub objects: u64,
}

impl std::fmt::Display for Circle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Circle { off, path, objects } = self;
        write!(
            f,
            "{objects} objects that nothing leads to are kept alive by a circle of strong pointers: {path}, the first at {off:#x}; \
             make one of these pointers weak"
        )
    }
}

/// How much of a heap objects of one type take.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypeUsage {
    /// The type's name.
    pub name: String,
    /// Its fields and where they lie.
    pub layout: String,
    /// Objects that are one value of the type.
    pub objects: u64,
    /// Arrays of values of the type.
    pub arrays: u64,
    /// Values in all arrays.
    pub elements: u64,
    /// Bytes of these objects and arrays, their heads included.
    pub bytes: u64,
}
