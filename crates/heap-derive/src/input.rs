//! A definition as the derives understand it, after they have refused everything that they cannot accept.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, GenericParam, Generics, LitStr, Member, Path, Result, Token,
    Visibility, parse_quote,
};

/// The type with the derive.
pub(crate) struct Input {
    pub ident: Ident,
    pub vis: Visibility,
    /// Its name in heaps.
    pub name: String,
    /// The path of `tembo_heap`.
    pub heap: Path,
    pub generics: Generics,
    pub shape: Shape,
}

/// The fields or variants of the type.
pub(crate) enum Shape {
    Struct(Vec<Field>),
    Enum {
        /// The type of the tag, with which every value begins.
        tag: Ident,
        variants: Vec<Variant>,
    },
}

/// A variant of an enum.
pub(crate) struct Variant {
    pub ident: Ident,
    pub docs: Vec<Attribute>,
    pub style: Style,
    pub fields: Vec<Field>,
    pub discriminant: Option<Expr>,
}

/// The syntax of a variant's fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Named,
    Tuple,
    Unit,
}

/// A field.
pub(crate) struct Field {
    pub member: Member,
    /// Its name in heaps.
    pub key: String,
    /// Its accessor: like the field, or `f0` of a field without a name.
    pub accessor: Ident,
    /// Its binding in patterns, which no name of the user's equals.
    pub binding: Ident,
    /// Its type, without `Self`.
    pub ty: TokenStream,
    pub vis: Visibility,
    pub docs: Vec<Attribute>,
}

impl Input {
    /// `heap` is the path of `tembo_heap`, unless the type names another.
    pub(crate) fn new(input: DeriveInput, heap: Path) -> Result<Input> {
        let options = Options::parse(&input.attrs, heap)?;
        let repr = Repr::parse(&input.attrs)?;
        if let Some(lifetime) = input.generics.lifetimes().next() {
            let message = "a persistent type has no lifetimes: what lies in a heap outlives everything that \
                           it could borrow; name objects by `PRc` or `PWeak`";
            return Err(Error::new_spanned(lifetime, message));
        }
        let generics = persistent_parameters(input.generics, &options.heap);
        let own = own_path(&input.ident, &generics);
        let shape = match input.data {
            Data::Struct(data) => {
                repr.of_struct(&input.ident)?;
                refuse_names_of_methods(&data.fields)?;
                Shape::Struct(fields(&data.fields, &own))
            }
            Data::Enum(data) => {
                if data.variants.is_empty() {
                    let message = "an enum without variants has no value that could lie in a heap";
                    return Err(Error::new_spanned(&input.ident, message));
                }
                let tag = repr.of_enum(&input.ident)?;
                Shape::Enum { tag, variants: data.variants.iter().map(|v| Variant::new(v, &own)).collect() }
            }
            Data::Union(data) => {
                let message = "a union cannot lie in a heap: nothing says which of its fields is there, and \
                               so whether there is a pointer; use an enum with #[repr(u32)]";
                return Err(Error::new(data.union_token.span, message));
            }
        };
        Ok(Input {
            name: options.name.unwrap_or_else(|| input.ident.unraw().to_string()),
            heap: options.heap,
            ident: input.ident,
            vis: input.vis,
            generics,
            shape,
        })
    }

    /// The type, with its parameters, where an expression or pattern may stand too.
    pub(crate) fn own_path(&self) -> TokenStream {
        own_path(&self.ident, &self.generics)
    }

    /// A name made of the type's, for an item next to it.
    pub(crate) fn item(&self, suffix: &str) -> Ident {
        format_ident!("{}{suffix}", self.ident, span = quiet(self.ident.span()))
    }
}

impl Variant {
    fn new(variant: &syn::Variant, own: &TokenStream) -> Variant {
        Variant {
            ident: variant.ident.clone(),
            docs: docs(&variant.attrs),
            style: match variant.fields {
                syn::Fields::Named(_) => Style::Named,
                syn::Fields::Unnamed(_) => Style::Tuple,
                syn::Fields::Unit => Style::Unit,
            },
            fields: fields(&variant.fields, own),
            discriminant: variant.discriminant.as_ref().map(|(_, value)| value.clone()),
        }
    }
}

/// A span for messages that does not count as the user's code, so that lints do not report it.
pub(crate) fn quiet(span: Span) -> Span {
    Span::call_site().located_at(span)
}

fn fields(fields: &syn::Fields, own: &TokenStream) -> Vec<Field> {
    let field = |(at, (field, member)): (usize, (&syn::Field, Member))| {
        let (key, accessor) = match &member {
            Member::Named(ident) => (ident.unraw().to_string(), ident.clone()),
            Member::Unnamed(index) => (index.index.to_string(), format_ident!("f{at}")),
        };
        Field {
            key,
            accessor: accessor_at(&accessor, field),
            binding: Ident::new(&format!("f{at}"), Span::mixed_site()),
            ty: without_self(field.ty.to_token_stream(), own),
            vis: field.vis.clone(),
            docs: docs(&field.attrs),
            member,
        }
    };
    fields.iter().zip(fields.members()).enumerate().map(field).collect()
}

/// Methods that all places and objects have everywhere, since their traits are in the prelude.
const METHODS: [&str; 8] = ["clone", "clone_from", "clone_into", "eq", "into", "ne", "to_owned", "try_into"];

/// Refuses fields whose accessors would have the name of a method of places.
fn refuse_names_of_methods(fields: &syn::Fields) -> Result<()> {
    let names = fields.iter().filter_map(|field| field.ident.as_ref());
    let errors = names.filter(|name| METHODS.iter().any(|method| name.unraw() == method)).map(|name| {
        let name = name.unraw();
        let message = format!(
            "a persistent field cannot be named `{name}`: its accessor would be `place.{name}()`, and every place has a method of \
             that name already, so that one would be called for the other; name the field `{name}_` or otherwise"
        );
        Error::new(name.span(), message)
    });
    errors
        .reduce(|mut all, error| {
            all.combine(error);
            all
        })
        .map_or(Ok(()), Err)
}

fn accessor_at(accessor: &Ident, field: &syn::Field) -> Ident {
    let mut accessor = accessor.clone();
    accessor.set_span(quiet(field.ident.as_ref().map_or_else(|| field.ty.span(), Ident::span)));
    accessor
}

fn docs(attributes: &[Attribute]) -> Vec<Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("doc")).cloned().collect()
}

/// Replaces `Self`, which is another type in the items that the derive makes.
fn without_self(tokens: TokenStream, own: &TokenStream) -> TokenStream {
    let replaced = tokens.into_iter().map(|token| match token {
        TokenTree::Ident(ident) if ident == "Self" => own.clone(),
        TokenTree::Group(group) => {
            let mut inner = Group::new(group.delimiter(), without_self(group.stream(), own));
            inner.set_span(group.span());
            TokenTree::from(inner).into()
        }
        other => other.into(),
    });
    replaced.collect()
}

fn own_path(ident: &Ident, generics: &Generics) -> TokenStream {
    let (_, arguments, _) = generics.split_for_impl();
    let arguments = arguments.as_turbofish();
    quote!(#ident #arguments)
}

/// The parameters as implementations name them: without defaults, each type persistent.
fn persistent_parameters(mut generics: Generics, heap: &Path) -> Generics {
    for parameter in &mut generics.params {
        match parameter {
            GenericParam::Type(parameter) => {
                parameter.eq_token = None;
                parameter.default = None;
                parameter.bounds.push(parse_quote!(#heap::Persist));
            }
            GenericParam::Const(parameter) => {
                parameter.eq_token = None;
                parameter.default = None;
            }
            GenericParam::Lifetime(_) => {}
        }
    }
    generics
}

/// The contents of `#[persist(...)]`.
struct Options {
    name: Option<String>,
    heap: Path,
}

impl Options {
    fn parse(attributes: &[Attribute], heap: Path) -> Result<Options> {
        let mut options = Options { name: None, heap };
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("persist")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("name") {
                    let name: LitStr = meta.value()?.parse()?;
                    if name.value().is_empty() {
                        return Err(Error::new_spanned(name, "a type needs a name"));
                    }
                    options.name = Some(name.value());
                    Ok(())
                } else if meta.path.is_ident("crate") {
                    options.heap = meta.value()?.call(Path::parse_mod_style)?;
                    Ok(())
                } else {
                    Err(meta.error("there is `name = \"...\"`, and `crate = path`"))
                }
            })?;
        }
        Ok(options)
    }
}

/// The contents of `#[repr(...)]`.
#[derive(Default)]
struct Repr {
    c: Option<Ident>,
    number: Option<Ident>,
}

impl Repr {
    fn parse(attributes: &[Attribute]) -> Result<Repr> {
        let mut repr = Repr::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("repr")) {
            let hints = attribute.parse_args_with(Punctuated::<syn::Meta, Token![,]>::parse_terminated)?;
            for hint in hints {
                let Some(ident) = hint.path().get_ident() else { continue };
                match ident.to_string().as_str() {
                    "C" => repr.c = Some(ident.clone()),
                    "align" => {}
                    "packed" => {
                        let message =
                            "a packed type cannot lie in a heap: its words would not be stored as wholes";
                        return Err(Error::new_spanned(hint, message));
                    }
                    "transparent" | "Rust" => {
                        let message = "a persistent struct has #[repr(C)]: that layout alone is written down";
                        return Err(Error::new_spanned(hint, message));
                    }
                    _ => repr.number = Some(ident.clone()),
                }
            }
        }
        Ok(repr)
    }

    fn of_struct(&self, ident: &Ident) -> Result<()> {
        if self.c.is_some() {
            return Ok(());
        }
        let message = format!(
            "`{ident}` needs #[repr(C)]: without it the next compiler may lay its fields out in another order, and \
             heaps outlive compilers"
        );
        Err(Error::new_spanned(ident, message))
    }

    fn of_enum(&self, ident: &Ident) -> Result<Ident> {
        if let Some(c) = &self.c {
            let message =
                "a persistent enum has the width of its tag as its only representation: #[repr(u32)] alone";
            return Err(Error::new_spanned(c, message));
        }
        let tags = ["u8", "u16", "u32", "u64"];
        match &self.number {
            Some(number) if tags.iter().any(|tag| number == tag) => Ok(number.clone()),
            Some(number) => {
                let message = "the tag of a persistent enum is `u8`, `u16`, `u32` or `u64`";
                Err(Error::new_spanned(number, message))
            }
            None => {
                let message = format!(
                    "`{ident}` needs #[repr(u32)] (or u8, u16, u64): without it the compiler chooses where its tag \
                     lies and how wide it is"
                );
                Err(Error::new_spanned(ident, message))
            }
        }
    }
}
