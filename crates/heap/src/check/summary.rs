//! The result of a check.

/// The contents of a heap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of openings for writing.
    pub generation: u64,
    /// Usage by type, in the order in which the types were added.
    pub types: Vec<TypeUsage>,
    /// Objects that only handles kept alive when the heap was last in use.
    pub orphans: u64,
    /// Dead objects that have not been released yet.
    pub dying: u64,
    /// Dead objects whose memory stays because weak pointers lead to them.
    pub shells: u64,
    /// Objects that an unfinished migration has replaced by a successor.
    pub moved: u64,
    /// Bytes of objects that do not move when the heap is compacted: the root, dead objects, and objects to
    /// which several pointers, a weak one or a handle lead.
    pub fixed_bytes: u64,
    /// Circles of strong pointers with no pointer from outside. The counts of their objects never reach 0.
    pub circles: Vec<Circle>,
}

/// Objects that keep each other alive, while neither the root nor a handle leads to them. They would die if
/// one of the circle's pointers were weak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Circle {
    /// The offset of one of its objects.
    pub off: u64,
    /// The names of its objects' types, in the order of the pointers; of a long circle only the first few.
    pub path: String,
    /// The number of objects that it keeps alive, its own included.
    pub objects: u64,
}

impl std::fmt::Display for Circle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Circle { off, path, objects } = self;
        write!(
            f,
            "a circle of strong pointers keeps {objects} objects alive that nothing else leads to: {path}, the first at {off:#x}; \
             make one of these pointers weak"
        )
    }
}

/// The space that objects of one type take.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypeUsage {
    /// The type's name.
    pub name: String,
    /// Its fields and their offsets.
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
