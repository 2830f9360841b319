//! The derives of `tembo-heap`: [`Persist`](macro@Persist) and [`Plain`](macro@Plain).
//!
//! A type in a heap outlives the program that wrote it. So the derives insist on a fixed layout, record it
//! (the offset and type of each field, and the pointers), and make the accessors by which a transaction goes
//! to a field.
//!
//! Their output is safe because it comes from the definition itself: offsets come from the compiler, every
//! field has to be `Persist` (or `Plain`) too, and a type with `Drop` does not compile.

mod access;
mod input;
mod persist;
mod plain;
#[cfg(test)]
mod tests;

use input::Input;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Path, parse_quote};

/// Lets values of a type lie in a heap, and makes the accessors of its fields.
///
/// A struct needs `#[repr(C)]`, an enum `#[repr(u8)]`, `u16`, `u32` or `u64`; every field has to be
/// `Persist`, and the type may have no `Drop` and no lifetimes. Type parameters have to be `Persist`, which
/// the derive asks for by itself.
///
/// For a struct `Node` there are traits, implemented by places that hold a `Node` (`Ref<'t, B, Node>`, and so
/// `Obj`), with a method for each field, which leads to the field's place. They are in scope where the struct
/// is defined.
///
/// | fields | trait | seen by |
/// |---|---|---|
/// | `pub` | `NodeFields` | whoever sees `Node` |
/// | `pub(crate)` | `NodeCrateFields` | the crate |
/// | `pub(super)` | `NodeSuperFields` | the parent module |
/// | `pub(in crate::store)` | `NodeInCrateStoreFields` | that module |
/// | others | `NodePrivateFields` | the module |
///
/// The fields of tuple structs are `f0()`, `f1()`, and so on.
///
/// For an enum `Shape` whose variants have fields there is an enum `ShapeRef` with the same variants, each of
/// whose fields is a place, and a trait `ShapeVariant`, whose method `variant(tx)` returns the variant that
/// lies there.
///
/// A field cannot be named like a method that every place has: `clone`, `clone_from`, `clone_into`, `eq`,
/// `ne`, `into`, `try_into`, `to_owned`. (`hash`, `fmt`, `borrow` and `deref` are methods of places only
/// where the program imports their traits; the accessor `NodeFields::hash(*object)` is meant in any case.)
///
/// `#[persist(name = "Node")]` gives the type another name in heaps than in the program, for example to an
/// old version of a type that reads old heaps. `#[persist(crate = path)]` gives the path of `tembo_heap` in a
/// program that knows it, or `tembo`, by another name.
#[proc_macro_derive(Persist, attributes(persist))]
pub fn derive_persist(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand(input, parse_quote!(::tembo_heap), persist)
}

/// As [`Persist`](macro@Persist), for programs that know `tembo` only: `tembo::heap` has it under that name.
#[proc_macro_derive(PersistOfTembo, attributes(persist))]
pub fn derive_persist_of_tembo(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand(input, parse_quote!(::tembo::heap), persist)
}

/// Lets values of a type without pointers be read, set and borrowed as a whole.
///
/// The type needs `Clone`, `Copy` and `Persist` too, and every field has to be `Plain`.
#[proc_macro_derive(Plain, attributes(persist))]
pub fn derive_plain(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand(input, parse_quote!(::tembo_heap), plain::implement)
}

/// As [`Plain`](macro@Plain), for programs that know `tembo` only: `tembo::heap` has it under that name.
#[proc_macro_derive(PlainOfTembo, attributes(persist))]
pub fn derive_plain_of_tembo(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand(input, parse_quote!(::tembo::heap), plain::implement)
}

/// Everything that `Persist` makes.
fn persist(input: &Input) -> TokenStream {
    let (no_drop, helpers) = (persist::no_drop(input), persist::helpers(input));
    let (persist, access) = (persist::implement(input), access::accessors(input));
    let (items, implementations) = (access.items, access.implementations);
    quote! {
        #items
        const _: () = {
            #no_drop
            #helpers
            #persist
            #implementations
        };
    }
}

fn expand(
    input: proc_macro::TokenStream,
    heap: Path,
    code: impl FnOnce(&Input) -> TokenStream,
) -> proc_macro::TokenStream {
    let input = syn::parse(input).and_then(|input| Input::new(input, heap));
    input.map_or_else(syn::Error::into_compile_error, |input| code(&input)).into()
}
