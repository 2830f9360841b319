//! The output of the derives, in cases where a program would not show a mistake. The tests of `tembo-heap`
//! cover the use of the derives, and their errors.

use crate::input::Input;
use crate::{access, persist};
use quote::ToTokens;
use syn::{DeriveInput, File, Item, ItemTrait, TraitItem, parse_quote};

fn input_of(input: DeriveInput) -> syn::Result<Input> {
    Input::new(input, parse_quote!(::tembo_heap))
}

fn traits(input: DeriveInput) -> Vec<ItemTrait> {
    let items = access::accessors(&input_of(input).unwrap()).items;
    let items = syn::parse2::<File>(items).unwrap().items.into_iter();
    items.filter_map(|item| if let Item::Trait(item) = item { Some(item) } else { None }).collect()
}

/// Each trait: its visibility, its name, and its methods.
fn outline(input: DeriveInput) -> Vec<String> {
    let methods = |item: &ItemTrait| {
        let names = item.items.iter().filter_map(|item| match item {
            TraitItem::Fn(method) => Some(method.sig.ident.to_string()),
            _ => None,
        });
        names.collect::<Vec<_>>().join(" ")
    };
    let line = |item: &ItemTrait| {
        let vis = item.vis.to_token_stream().to_string().replace(' ', "");
        format!("{vis} {}: {}", item.ident, methods(item)).trim_start().to_owned()
    };
    traits(input).iter().map(line).collect()
}

#[test]
fn no_trait_shows_a_field_to_more_than_the_field_itself_does() {
    let outlines = outline(parse_quote! {
        #[repr(C)]
        pub struct Node {
            pub a: u8,
            b: u8,
            pub(crate) c: u8,
            pub(super) d: u8,
            pub(in crate::some_store) e: u8,
            pub(self) f: u8,
            pub g: u8,
            pub(in super::super) h: u8,
        }
    });
    let expected = [
        "pub NodeFields: a g",
        "NodePrivateFields: b f",
        "pub(crate) NodeCrateFields: c",
        "pub(super) NodeSuperFields: d",
        "pub(incrate::some_store) NodeInCrateSomeStoreFields: e",
        "pub(insuper::super) NodeInSuperSuperFields: h",
    ];
    assert_eq!(outlines, expected);
}

#[test]
fn public_fields_are_seen_no_further_than_their_struct() {
    let seen = outline(parse_quote!(
        #[repr(C)]
        pub(super) struct Pair(pub u8, u16);
    ));
    assert_eq!(seen, ["pub(super) PairFields: f0", "PairPrivateFields: f1"]);
    assert_eq!(
        outline(parse_quote!(
            #[repr(C)]
            struct Pair(pub u8);
        )),
        ["PairFields: f0"]
    );
    assert_eq!(
        outline(parse_quote!(
            #[repr(C)]
            pub struct Unit;
        )),
        [""; 0]
    );
}

#[test]
fn the_names_that_the_derive_brings_are_not_the_users() {
    let brand = |input| {
        let parameters = &traits(input)[0].generics.params;
        parameters.to_token_stream().to_string().replace(' ', "")
    };
    let plain = brand(parse_quote!(
        #[repr(C)]
        struct Node {
            key: u64,
        }
    ));
    assert_eq!(plain, "'t,B:::tembo_heap::Brand");
    let of_parameter = brand(parse_quote!(
        #[repr(C)]
        struct Node<B> {
            key: B,
        }
    ));
    assert_eq!(of_parameter, "'t,Brand:::tembo_heap::Brand,B:::tembo_heap::Persist");
    let of_fields = brand(parse_quote!(
        #[repr(C)]
        struct Node {
            key: PRc<B>,
            f: PhantomData<for<'t> fn(&'t Brand)>,
        }
    ));
    assert_eq!(of_fields, "'tx,HeapBrand:::tembo_heap::Brand");
}

#[test]
fn self_is_the_type_wherever_it_stands() {
    let node: DeriveInput = parse_quote!(
        #[repr(C)]
        struct Node<T> {
            next: PRc<Self>,
            tag: [u8; Self::BYTES],
            of: T,
        }
    );
    let text = traits(node)[0].to_token_stream().to_string().replace(' ', "");
    assert!(text.contains("PRc<Node::<T>>") && text.contains("Node::<T>::BYTES"), "{text}");
    assert!(!text.contains("Self"), "{text}");
}

#[test]
fn tags_are_numbered_from_the_last_that_was_given() {
    let shape = parse_quote!(
        #[repr(u16)]
        enum Shape {
            A,
            B = 7,
            C(u8),
            D = { 3 * 4 },
            E,
        }
    );
    let helpers = persist::helpers(&input_of(shape).unwrap());
    let items = syn::parse2::<File>(helpers).unwrap().items.into_iter();
    let tags = items.filter_map(|item| match item {
        Item::Const(item) => Some(item.expr.to_token_stream().to_string()),
        _ => None,
    });
    let expected = ["0", "7", "__tag_B + 1", "{ 3 * 4 }", "__tag_D + 1"];
    assert_eq!(tags.collect::<Vec<_>>(), expected);
}

#[test]
fn every_mistake_is_said_at_its_place() {
    let refused = |input| input_of(input).err().expect("it is refused").to_string();
    assert!(
        refused(parse_quote!(
            #[repr(C)]
            #[persist(name = "")]
            struct Node;
        ))
        .contains("needs a name")
    );
    assert!(
        refused(parse_quote!(
            #[repr(C)]
            #[persist(named = "A")]
            struct Node;
        ))
        .contains("`name = ")
    );
    assert!(
        refused(parse_quote!(
            #[repr(C, packed(2))]
            struct Node;
        ))
        .contains("packed")
    );
    assert!(
        refused(parse_quote!(
            #[repr(u128)]
            enum Shape {
                A,
            }
        ))
        .contains("`u64`")
    );
    assert!(
        refused(parse_quote!(
            #[repr(align(8))]
            struct Node;
        ))
        .contains("#[repr(C)]")
    );
    assert!(
        refused(parse_quote!(
            #[repr(C)]
            struct Node<'a>(&'a u8);
        ))
        .contains("no lifetimes")
    );
    assert!(
        refused(parse_quote!(
            #[repr(C)]
            struct Node {
                r#into: u8,
            }
        ))
        .contains("every place has a method of that name")
    );
}

/// Types had to name the path of the heap's crate, or depend on `tembo-heap`, whichever crate the derive came
/// from.
#[test]
fn the_code_names_the_crate_that_the_derive_was_taken_from() {
    let of_tembo: syn::Path = parse_quote!(::tembo::heap);
    let paths = |heap: &syn::Path, node: DeriveInput| {
        crate::persist(&Input::new(node, heap.clone()).unwrap()).to_string().replace(' ', "")
    };
    let node = || {
        parse_quote!(
            #[repr(C)]
            struct Node {
                key: u64,
            }
        )
    };
    let text = paths(&of_tembo, node());
    assert!(text.contains("::tembo::heap::Persist") && !text.contains("tembo_heap"), "{text}");
    let renamed = parse_quote!(
        #[repr(C)]
        #[persist(crate = ::store::heap)]
        struct Node {
            key: u64,
        }
    );
    let text = paths(&of_tembo, renamed);
    assert!(text.contains("::store::heap::Persist") && !text.contains("tembo"), "{text}");
}
