//! Accessors: from the place of a value to the places of its fields.

use crate::input::{Field, Input, Shape, Style, Variant, quiet};
use crate::persist::{asked_before, struct_offset, tag_of, variant_offset};
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use std::collections::BTreeSet;
use syn::ext::IdentExt;
use syn::{Attribute, Generics, Lifetime, Visibility, parse_quote};

/// The accessors that `#[derive(Persist)]` adds to the implementation.
#[derive(Default)]
pub(crate) struct Accessors {
    /// Items next to the type, with names of their own.
    pub items: TokenStream,
    /// Items in the scope of the derive's helper names.
    pub implementations: TokenStream,
}

/// The accessors of the type's fields.
pub(crate) fn accessors(input: &Input) -> Accessors {
    match &input.shape {
        Shape::Struct(fields) => of_struct(input, fields),
        Shape::Enum { tag, variants } if variants.iter().any(|variant| !variant.fields.is_empty()) => {
            of_enum(input, tag, variants)
        }
        // No variant has fields: the enum is read as a whole, if it is plain.
        Shape::Enum { .. } => Accessors::default(),
    }
}

/// The transaction's lifetime and the heap's brand, with the parameters of the type.
struct Scope {
    tx: Lifetime,
    brand: Ident,
    generics: Generics,
}

impl Scope {
    fn new(input: &Input) -> Scope {
        let mut taken = BTreeSet::new();
        names(input.generics.params.to_token_stream(), &mut taken);
        names(input.generics.where_clause.to_token_stream(), &mut taken);
        names(input.ident.to_token_stream(), &mut taken);
        let fields: Box<dyn Iterator<Item = &Field>> = match &input.shape {
            Shape::Struct(fields) => Box::new(fields.iter()),
            Shape::Enum { variants, .. } => Box::new(variants.iter().flat_map(|variant| &variant.fields)),
        };
        fields.for_each(|field| names(field.ty.clone(), &mut taken));
        let free = |candidates: &[&'static str]| {
            *candidates.iter().find(|name| !taken.contains(**name)).expect("a candidate is free")
        };
        let tx = Lifetime::new(free(&["'t", "'tx", "'in_transaction"]), Span::call_site());
        let brand = Ident::new(free(&["B", "Brand", "HeapBrand"]), Span::call_site());
        let mut generics = input.generics.clone();
        let heap = &input.heap;
        generics.params.insert(0, parse_quote!(#brand: #heap::Brand));
        generics.params.insert(0, parse_quote!(#tx));
        Scope { tx, brand, generics }
    }
}

/// Collects the names in `tokens`, those of lifetimes with their tick.
fn names(tokens: TokenStream, into: &mut BTreeSet<String>) {
    let mut tick = "";
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                into.insert(format!("{tick}{ident}"));
            }
            TokenTree::Punct(punct) if punct.as_char() == '\'' => {
                tick = "'";
                continue;
            }
            TokenTree::Group(group) => names(group.stream(), into),
            _ => {}
        }
        tick = "";
    }
}

fn of_struct(input: &Input, fields: &[Field]) -> Accessors {
    let scope = Scope::new(input);
    let mut groups: Vec<Group<'_>> = Vec::new();
    for field in fields {
        let (suffix, vis) = seen_by(input, &field.vis);
        match groups.iter_mut().find(|group| group.suffix == suffix) {
            Some(group) => group.fields.push(field),
            None => groups.push(Group { suffix, vis, fields: vec![field] }),
        }
    }
    let mut accessors = Accessors::default();
    for group in &groups {
        accessors.items.extend(fields_trait(input, &scope, group));
        accessors.implementations.extend(fields_of_place(input, &scope, group));
    }
    accessors
}

/// Fields with the same visibility.
struct Group<'a> {
    suffix: String,
    vis: Visibility,
    fields: Vec<&'a Field>,
}

/// The visibility of a field: the end of its trait's name, and the visibility of that trait.
fn seen_by(input: &Input, vis: &Visibility) -> (String, Visibility) {
    let path = match vis {
        Visibility::Public(_) => return ("Fields".to_owned(), input.vis.clone()),
        Visibility::Restricted(restricted) if !restricted.path.is_ident("self") => &restricted.path,
        _ => return ("PrivateFields".to_owned(), Visibility::Inherited),
    };
    let names = path.segments.iter().map(|segment| capital(&segment.ident.unraw().to_string()));
    let names: String = names.collect();
    let by = if path.segments.len() > 1 { "In" } else { "" };
    (format!("{by}{names}Fields"), vis.clone())
}

/// `some_module` as `SomeModule`.
fn capital(name: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    };
    name.split('_').map(word).collect()
}

fn fields_trait(input: &Input, scope: &Scope, group: &Group<'_>) -> TokenStream {
    let Scope { tx, brand, generics } = scope;
    let (heap, vis, name) = (&input.heap, &group.vis, input.item(&group.suffix));
    let conditions = &generics.where_clause;
    let about = format!("Goes from the place of a [`{0}`] to those of its fields.", input.ident.unraw());
    let methods = group.fields.iter().map(|Field { accessor, ty, docs, key, .. }| {
        let docs = docs_or(docs, &format!("The place of the field `{key}`."));
        quote! {
            #docs
            fn #accessor(self) -> #heap::Ref<#tx, #brand, #ty>;
        }
    });
    quote! {
        #[doc = #about]
        #[allow(dead_code)]
        #vis trait #name #generics #conditions {
            #(#methods)*
        }
    }
}

fn fields_of_place(input: &Input, scope: &Scope, group: &Group<'_>) -> TokenStream {
    let Scope { tx, brand, generics } = scope;
    let (ident, heap, name) = (&input.ident, &input.heap, input.item(&group.suffix));
    let (parameters, trait_arguments, conditions) = generics.split_for_impl();
    let (_, arguments, _) = input.generics.split_for_impl();
    let methods = group.fields.iter().map(|Field { accessor, ty, member, .. }| {
        let place = struct_offset(input, member);
        let asked = asked_before(heap, ty);
        // SAFETY (of the code below): this is the field's type and its offset in every value.
        quote! {
            #[inline(always)]
            fn #accessor(self) -> #heap::Ref<#tx, #brand, #ty> {
                #asked
                unsafe { #heap::Ref::__project::<#ty>(self, #place) }
            }
        }
    });
    quote! {
        #[automatically_derived]
        impl #parameters #name #trait_arguments for #heap::Ref<#tx, #brand, #ident #arguments> #conditions {
            #(#methods)*
        }
    }
}

fn of_enum(input: &Input, tag: &Ident, variants: &[Variant]) -> Accessors {
    let scope = Scope::new(input);
    Accessors {
        items: variant_items(input, &scope, variants),
        implementations: variant_implementations(input, &scope, tag, variants),
    }
}

/// The enum of places and the trait that returns it.
fn variant_items(input: &Input, scope: &Scope, variants: &[Variant]) -> TokenStream {
    let Scope { tx, brand, generics } = scope;
    let Input { ident, heap, vis, .. } = input;
    let (by_place, by_variant) = (input.item("Ref"), input.item("Variant"));
    let conditions = &generics.where_clause;
    let (_, all_arguments, _) = generics.split_for_impl();
    let about = format!("The variant of a [`{0}`] at a place, with the places of its fields.", ident.unraw());
    let about_trait = format!("Returns the variant of the [`{0}`] at a place.", ident.unraw());
    let of_variants = variants.iter().map(|variant| variant_of_places(input, scope, variant));
    quote! {
        #[doc = #about]
        #[allow(dead_code)]
        #vis enum #by_place #generics #conditions {
            #(#of_variants)*
        }

        #[doc = #about_trait]
        #[allow(dead_code)]
        #vis trait #by_variant #generics #conditions {
            /// The variant that lies here, with the places of its fields.
            ///
            /// # Errors
            ///
            /// A conflict with another transaction; corruption if no variant has the tag.
            fn variant(self, tx: &#heap::ReadTx<#tx, #brand>) -> #heap::Result<#by_place #all_arguments>;
        }
    }
}

fn variant_implementations(input: &Input, scope: &Scope, tag: &Ident, variants: &[Variant]) -> TokenStream {
    let Scope { tx, brand, generics } = scope;
    let Input { ident, heap, .. } = input;
    let (by_place, by_variant) = (input.item("Ref"), input.item("Variant"));
    let conditions = &generics.where_clause;
    let (parameters, all_arguments, _) = generics.split_for_impl();
    let (_, arguments, _) = input.generics.split_for_impl();
    let arms = variants.iter().map(|variant| {
        let (name, value) = (&variant.ident, tag_of(variant));
        let fields = variant.fields.iter().enumerate().map(|(at, Field { member, ty, .. })| {
            let place = variant_offset(input, variant, at);
            let asked = asked_before(heap, ty);
            quote!(#member: { #asked unsafe { #heap::Ref::__project::<#ty>(place, #place) } })
        });
        quote!(#value => #by_place::#name { #(#fields),* },)
    });
    // SAFETY (of the code below): every value begins with its tag. The tag was just read, and names this
    // variant, whose fields have these types at these offsets.
    quote! {
        #[automatically_derived]
        impl #parameters ::core::marker::Copy for #by_place #all_arguments #conditions {}

        #[automatically_derived]
        impl #parameters ::core::clone::Clone for #by_place #all_arguments #conditions {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }

        #[automatically_derived]
        impl #parameters #by_variant #all_arguments for #heap::Ref<#tx, #brand, #ident #arguments> #conditions {
            #[inline]
            fn variant(self, tx: &#heap::ReadTx<#tx, #brand>) -> #heap::Result<#by_place #all_arguments> {
                let tag: #tag = tx.get(unsafe { #heap::Ref::__project::<#tag>(self, 0) })?;
                let place = unsafe { #heap::Ref::__as_now(self, tx) };
                ::core::result::Result::Ok(match tag {
                    #(#arms)*
                    _ => return ::core::result::Result::Err(tx.unknown_variant(self, tag as u64)),
                })
            }
        }
    }
}

/// The variant with places for fields.
fn variant_of_places(input: &Input, scope: &Scope, variant: &Variant) -> TokenStream {
    let (heap, Scope { tx, brand, .. }) = (&input.heap, scope);
    let mut name = variant.ident.clone();
    name.set_span(quiet(name.span()));
    let docs = docs_or(&variant.docs, &format!("The variant `{}`.", name.unraw()));
    let fields = variant.fields.iter().map(|Field { accessor, ty, docs, key, .. }| {
        let docs = docs_or(docs, &format!("The place of the field `{key}`."));
        let label = (variant.style == Style::Named).then(|| quote!(#accessor:));
        quote!(#docs #label #heap::Ref<#tx, #brand, #ty>)
    });
    match variant.style {
        Style::Named => quote!(#docs #name { #(#fields),* },),
        Style::Tuple => quote!(#docs #name(#(#fields),*),),
        Style::Unit => quote!(#docs #name,),
    }
}

/// The user's own documentation of an item, or else this.
fn docs_or(docs: &[Attribute], otherwise: &str) -> TokenStream {
    if docs.is_empty() { quote!(#[doc = #otherwise]) } else { quote!(#(#docs)*) }
}
