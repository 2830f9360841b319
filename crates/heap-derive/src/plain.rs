//! `#[derive(Plain)]`: the implementation.

use crate::input::{Field, Input, Shape};
use crate::persist;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{GenericParam, parse_quote};

/// The implementation of `Plain`.
pub(crate) fn implement(input: &Input) -> TokenStream {
    let Input { ident, heap, .. } = input;
    let mut generics = input.generics.clone();
    for parameter in &mut generics.params {
        if let GenericParam::Type(parameter) = parameter {
            parameter.bounds.push(parse_quote!(#heap::Plain));
        }
    }
    let (parameters, arguments, conditions) = generics.split_for_impl();
    let helpers = persist::helpers(input);
    let decode = match &input.shape {
        Shape::Struct(fields) => {
            let fields = decode_fields(input, fields, |at| persist::struct_offset(input, &fields[at].member));
            quote!(::core::option::Option::Some(Self { #fields }))
        }
        Shape::Enum { tag, variants } => {
            let arms = variants.iter().map(|variant| {
                let (name, value) = (&variant.ident, persist::tag_of(variant));
                let place = |at| persist::variant_offset(input, variant, at);
                let fields = decode_fields(input, &variant.fields, place);
                quote!(#value => Self::#name { #fields },)
            });
            quote! {
                let tag = <#tag as #heap::Plain>::decode(bytes.get(..::core::mem::size_of::<#tag>())?)?;
                ::core::option::Option::Some(match tag {
                    #(#arms)*
                    _ => return ::core::option::Option::None,
                })
            }
        }
    };
    // SAFETY (of the code below): every field has to be plain, and each is read where `#[derive(Persist)]`
    // writes it.
    quote! {
        const _: () = {
            #helpers

            #[automatically_derived]
            unsafe impl #parameters #heap::Plain for #ident #arguments #conditions {
                #[inline]
                fn decode(bytes: &[u8]) -> ::core::option::Option<Self> {
                    let _ = bytes;
                    #decode
                }
            }
        };
    }
}

fn decode_fields(input: &Input, fields: &[Field], place: impl Fn(usize) -> TokenStream) -> TokenStream {
    let heap = &input.heap;
    let decode = fields.iter().enumerate().map(|(at, Field { member, ty, .. })| {
        let place = place(at);
        quote! {
            #member: <#ty as #heap::Plain>::decode(bytes.get(#place..)?.get(..::core::mem::size_of::<#ty>())?)?
        }
    });
    quote!(#(#decode),*)
}
