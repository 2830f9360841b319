//! `#[derive(Persist)]`: the implementation.

use crate::input::{Field, Input, Shape, Variant, quiet};
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{GenericParam, Generics};

/// The implementation of `Persist`.
pub(crate) fn implement(input: &Input) -> TokenStream {
    let Input { ident, heap, name, generics, .. } = input;
    let (parameters, arguments, conditions) = generics.split_for_impl();
    let name_hash = name_hash(input);
    let full_name = full_name(input);
    let Body { hash, describe, encode, has_variants, has_pointers } = match &input.shape {
        Shape::Struct(fields) => of_struct(input, fields),
        Shape::Enum { tag, variants } => of_enum(input, tag, variants),
    };
    // SAFETY (of the code below): `Input` saw the representation, and `no_drop` excludes `Drop`. The fields
    // are named by exhaustive patterns, lie where `offset_of!` says, and have to be `Persist` themselves;
    // `hash`, `describe` and `encode` are made from the same list.
    quote! {
        #[automatically_derived]
        unsafe impl #parameters #heap::Persist for #ident #arguments #conditions {
            const NAME_HASH: u64 = #name_hash;
            const HASH: u64 = #heap::LayoutHash::new(#name)
                .number(<Self as #heap::Persist>::NAME_HASH)
                .number(::core::mem::size_of::<Self>() as u64)
                .number(::core::mem::align_of::<Self>() as u64)
                #hash
                .finish();
            const HAS_VARIANTS: bool = #has_variants;
            const HAS_POINTERS: bool = #has_pointers;

            fn name() -> ::std::string::String {
                #full_name
            }

            fn describe(layout: &mut #heap::Describe) {
                #describe
            }

            #[inline]
            fn encode(&self, out: &mut [u8]) {
                #encode
            }
        }
    }
}

/// The facts that the implementations for an enum rely on: its tags, and the offsets of its variants' fields.
pub(crate) fn helpers(input: &Input) -> TokenStream {
    let Shape::Enum { tag, variants } = &input.shape else { return TokenStream::new() };
    let mut helpers = tags(tag, variants);
    helpers.extend(variants.iter().map(|variant| variant_layout(input, tag, variant)));
    helpers
}

/// The differences between structs and enums.
struct Body {
    hash: TokenStream,
    describe: TokenStream,
    encode: TokenStream,
    has_variants: TokenStream,
    has_pointers: TokenStream,
}

fn of_struct(input: &Input, fields: &[Field]) -> Body {
    let heap = &input.heap;
    let places: Vec<_> = fields.iter().map(|f| struct_offset(input, &f.member)).collect();
    let bindings =
        fields.iter().map(|f| (&f.member, &f.binding)).map(|(member, binding)| quote!(#member: #binding));
    let encode = encode_fields(heap, fields, &places);
    let types: Vec<_> = fields.iter().map(|field| &field.ty).collect();
    Body {
        has_variants: quote!(false #(|| <#types as #heap::Persist>::HAS_VARIANTS)*),
        has_pointers: quote!(false #(|| <#types as #heap::Persist>::HAS_POINTERS)*),
        hash: hash_fields(heap, fields, &places),
        describe: describe_fields(heap, fields, &places),
        encode: quote! {
            let Self { #(#bindings),* } = self;
            #encode
        },
    }
}

/// The offset of a field of the struct.
pub(crate) fn struct_offset(input: &Input, member: &syn::Member) -> TokenStream {
    let own = input.own_path();
    quote!(::core::mem::offset_of!(#own, #member))
}

fn of_enum(input: &Input, tag: &Ident, variants: &[Variant]) -> Body {
    let heap = &input.heap;
    let (mut hash, mut describe, mut encode) = (TokenStream::new(), TokenStream::new(), TokenStream::new());
    for variant in variants {
        let (ident, name) = (&variant.ident, variant.ident.unraw().to_string());
        let value = tag_of(variant);
        let places: Vec<_> = (0..variant.fields.len()).map(|at| variant_offset(input, variant, at)).collect();
        let fields = hash_fields(heap, &variant.fields, &places);
        hash.extend(quote!(.text(#name).number(#value as u64) #fields));
        let fields = describe_fields(heap, &variant.fields, &places);
        describe.extend(quote! {
            layout.variant(#name, ::core::mem::size_of::<#tag>(), #value as u64, |layout| {
                let _ = &layout;
                #fields
            });
        });
        let members =
            variant.fields.iter().map(|f| (&f.member, &f.binding)).map(|(m, binding)| quote!(#m: #binding));
        let fields = encode_fields(heap, &variant.fields, &places);
        encode.extend(quote! {
            Self::#ident { #(#members),* } => {
                <#tag as #heap::Persist>::encode(&#value, &mut out[..::core::mem::size_of::<#tag>()]);
                #fields
            }
        });
    }
    let has_variants = variants.iter().any(|variant| !variant.fields.is_empty());
    let types = variants.iter().flat_map(|variant| &variant.fields).map(|field| &field.ty);
    Body {
        hash,
        describe,
        encode: quote!(match self { #encode }),
        has_variants: quote!(#has_variants),
        has_pointers: quote!(false #(|| <#types as #heap::Persist>::HAS_POINTERS)*),
    }
}

/// A constant for the tag of each variant, with the numbers that the compiler gives.
fn tags(tag: &Ident, variants: &[Variant]) -> TokenStream {
    let mut before: Option<Ident> = None;
    let mut tags = TokenStream::new();
    for variant in variants {
        let name = tag_of(variant);
        let value = match (&variant.discriminant, &before) {
            (Some(value), _) => quote!(#value),
            (None, Some(before)) => quote!(#before + 1),
            (None, None) => quote!(0),
        };
        tags.extend(quote! {
            #[allow(non_upper_case_globals)]
            const #name: #tag = #value;
        });
        before = Some(name);
    }
    tags
}

/// The constant with the tag of a variant.
pub(crate) fn tag_of(variant: &Variant) -> Ident {
    format_ident!("__tag_{}", variant.ident, span = quiet(variant.ident.span()))
}

/// A struct with the layout of the variant: an enum with `repr(u32)` is a union of structs with `repr(C)`,
/// each of which begins with the tag.
fn variant_layout(input: &Input, tag: &Ident, variant: &Variant) -> TokenStream {
    if variant.fields.is_empty() {
        return TokenStream::new();
    }
    let name = layout_of(variant);
    let (parameters, _, conditions) = input.generics.split_for_impl();
    let own = input.own_path();
    let types = variant.fields.iter().map(|field| &field.ty);
    quote! {
        #[repr(C)]
        #[allow(dead_code)]
        struct #name #parameters (#tag, #(#types,)* ::core::marker::PhantomData<fn() -> #own>) #conditions;
    }
}

fn layout_of(variant: &Variant) -> Ident {
    format_ident!("__Layout{}", variant.ident, span = quiet(variant.ident.span()))
}

/// The offset of the field `at` of a variant.
pub(crate) fn variant_offset(input: &Input, variant: &Variant, at: usize) -> TokenStream {
    let (name, (_, arguments, _)) = (layout_of(variant), input.generics.split_for_impl());
    let member = syn::Index::from(at + 1);
    quote!(::core::mem::offset_of!(#name #arguments, #member))
}

/// Requires `Persist` of the field's type as `HASH` and `encode` do, before a function with that bound does:
/// the compiler then reports a field that is not persistent once, and in one form.
pub(crate) fn asked_before(heap: &syn::Path, ty: &TokenStream) -> TokenStream {
    quote!(let _ = <#ty as #heap::Persist>::HASH;)
}

fn hash_fields(heap: &syn::Path, fields: &[Field], places: &[TokenStream]) -> TokenStream {
    let hash = fields
        .iter()
        .zip(places)
        .map(|(Field { key, ty, .. }, place)| quote!(.field(#key, #place, <#ty as #heap::Persist>::HASH)));
    quote!(#(#hash)*)
}

fn describe_fields(heap: &syn::Path, fields: &[Field], places: &[TokenStream]) -> TokenStream {
    let describe = fields.iter().zip(places).map(|(Field { key, ty, .. }, place)| {
        let asked = asked_before(heap, ty);
        quote!(#asked layout.field::<#ty>(#key, #place);)
    });
    quote!(#(#describe)*)
}

fn encode_fields(heap: &syn::Path, fields: &[Field], places: &[TokenStream]) -> TokenStream {
    let encode = fields.iter().zip(places).map(|(Field { binding, ty, .. }, place)| {
        quote! {
            <#ty as #heap::Persist>::encode(
                #binding,
                &mut out[#place..][..::core::mem::size_of::<#ty>()],
            );
        }
    });
    quote!(#(#encode)*)
}

fn name_hash(input: &Input) -> TokenStream {
    let Input { heap, name, .. } = input;
    let parameters = input.generics.params.iter().filter_map(|parameter| match parameter {
        GenericParam::Type(parameter) => {
            let ident = &parameter.ident;
            Some(quote!(.number(<#ident as #heap::Persist>::NAME_HASH)))
        }
        GenericParam::Const(parameter) => {
            let ident = &parameter.ident;
            Some(quote!(.number(#ident as u64)))
        }
        GenericParam::Lifetime(_) => None,
    });
    quote!(#heap::LayoutHash::new(#name) #(#parameters)* .finish())
}

fn full_name(input: &Input) -> TokenStream {
    let Input { heap, name, .. } = input;
    let parameters: Vec<_> = parameter_names(&input.generics, heap);
    if parameters.is_empty() {
        return quote!(::std::borrow::ToOwned::to_owned(#name));
    }
    let format = format!(
        "{}<{}>",
        name.replace('{', "{{").replace('}', "}}"),
        vec!["{}"; parameters.len()].join(", ")
    );
    quote!(::std::format!(#format, #(#parameters),*))
}

fn parameter_names(generics: &Generics, heap: &syn::Path) -> Vec<TokenStream> {
    let name = |parameter: &GenericParam| match parameter {
        GenericParam::Type(parameter) => {
            let ident = &parameter.ident;
            Some(quote!(<#ident as #heap::Persist>::name()))
        }
        GenericParam::Const(parameter) => {
            let ident = &parameter.ident;
            Some(quote!(#ident))
        }
        GenericParam::Lifetime(_) => None,
    };
    generics.params.iter().filter_map(name).collect()
}

/// Two implementations of one trait, which conflict if the type has `Drop`. The compiler's message has the
/// trait's name.
pub(crate) fn no_drop(input: &Input) -> TokenStream {
    let Input { ident, generics, .. } = input;
    let (parameters, arguments, conditions) = generics.split_for_impl();
    let at_type = quote_spanned! {quiet(ident.span())=>
        impl #parameters PersistentTypesMustNotImplementDrop for #ident #arguments #conditions {}
    };
    quote! {
        trait PersistentTypesMustNotImplementDrop {}
        #[allow(drop_bounds)]
        impl<Dropped: ::core::ops::Drop + ?::core::marker::Sized> PersistentTypesMustNotImplementDrop for Dropped {}
        #at_type
    }
}
