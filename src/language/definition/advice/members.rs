//! Types that are known before there is data: a number in the data is a double, a failure's `code` is a string, and
//! providers say the types of what their Results hold.

use std::sync::Arc;

use super::super::{Compiler, PlacedOperation};
use crate::language::expr::{LiteralType, Operation, OperationKind, Program, Root};
use crate::language::plan::{Action, Envelope, Plan, Shape, Target};
use crate::language::provider::CallProvider;
use crate::source::{Diagnostic, Node, with_article};

impl Compiler<'_> {
    /// Warns of arithmetic that always fails, and keeps the comparisons for later.
    pub(in super::super) fn check_operations(
        &mut self,
        node: &Node,
        shift: usize,
        program: &Program,
    ) {
        for operation in program.operations() {
            let Operation { kind, literal, .. } = operation;
            let offset = shift + operation.offset;
            match (kind, literal) {
                (OperationKind::Arithmetic, LiteralType::Integer(integer)) => {
                    let message = format!(
                        "a number in the data, such as `{}`, is a double, and CEL does not reckon with a double and the integer {integer}: this always fails",
                        name(operation)
                    );
                    let help = format!("write `{integer}.0`, or convert the member with `int(…)`");
                    let diagnostic = Diagnostic::warning("mixed-numbers", node.span, message);
                    self.found.push(diagnostic.with_help(help).with_offset(offset));
                }
                (OperationKind::Arithmetic, _) => {}
                (OperationKind::Equality | OperationKind::Order, _) => {
                    let operation = operation.clone();
                    self.operations.push(PlacedOperation { operation, span: node.span, offset });
                }
            }
        }
    }

    /// Warns of comparisons between types that are never equal.
    pub(super) fn advise_members(&mut self, plan: &Plan) {
        let operations = std::mem::take(&mut self.operations);
        if operations.is_empty() {
            return;
        }
        let known = KnownTypes::of(plan);
        for PlacedOperation { operation, span, offset } in operations {
            let seen = operation.literal.name();
            let Some(ty) = known.of_member(&operation).filter(|ty| *ty != seen) else {
                continue;
            };
            let result = match operation.kind {
                OperationKind::Order => "so this always fails",
                _ => "so they are never equal",
            };
            let message = format!(
                "`{}` is {}, and this compares it with {}, {result}",
                name(&operation),
                with_article(ty),
                with_article(seen)
            );
            let help = format!("write {}", with_article(ty));
            let diagnostic = Diagnostic::warning("mismatched-types", span, message);
            self.found.push(diagnostic.with_help(help).with_offset(offset));
        }
    }
}

/// What the providers of a plan say of their Results.
struct KnownTypes<'p> {
    providers: Vec<&'p Arc<dyn CallProvider>>,
    /// Whether every `details` was made by a provider.
    details: bool,
    /// Whether every `value` was made by a provider.
    values: bool,
}

impl<'p> KnownTypes<'p> {
    fn of(plan: &'p Plan) -> Self {
        let provider = |call: &'p crate::language::plan::CallPlan| match &call.target {
            Target::Provider(provider) => Some(provider),
            Target::Flow(_) => None,
        };
        let shapes = |shape: &Shape| matches!(shape, Shape::Value(_));
        let writes_details = |envelope: &Envelope| envelope.details.is_some();
        let steps = || plan.flows().iter().flat_map(|flow| &flow.steps);
        let raises = steps().any(|step| match &step.action {
            Action::Raise(Some(envelope)) => writes_details(envelope),
            _ => false,
        });
        let mut phases = plan.entries().flat_map(|entry| &entry.phases);
        let reshapes = phases.any(|phase| match &phase.shape {
            Shape::Envelope(envelope) => writes_details(envelope),
            _ => false,
        });
        let mut phases = plan.entries().flat_map(|entry| &entry.phases);
        Self {
            providers: plan.calls().filter_map(provider).collect(),
            details: !raises && !reshapes,
            values: plan.calls().all(|call| provider(call).is_some() && call.value.is_none())
                && !phases.any(|phase| shapes(&phase.shape)),
        }
    }

    /// The JSON type of the member that `operation` reads, if there can be only one.
    fn of_member(&self, operation: &Operation) -> Option<&'static str> {
        let members: Vec<&str> = operation.members.iter().map(AsRef::as_ref).collect();
        let mut rest = match (operation.root, members.as_slice()) {
            (Root::Call, ["index"]) => return Some("number"),
            (Root::Step, ["name" | "id" | "action"]) | (Root::Execution, ["id"]) => {
                return Some("string");
            }
            (Root::Failure, rest)
            | (
                Root::Middleware | Root::Step | Root::Call | Root::Flow | Root::Provider,
                ["result", rest @ ..],
            ) => rest,
            _ => return None,
        };
        while let ["previous", inner @ ..] = rest {
            rest = inner;
        }
        match rest {
            ["type" | "code" | "message"] => Some("string"),
            ["details", ..] if self.details => self.provided(&rest.join(".")),
            ["value", ..] if self.values => self.provided(&rest.join(".")),
            _ => None,
        }
    }

    /// The type that every provider of the plan gives this path.
    fn provided(&self, path: &str) -> Option<&'static str> {
        let of = |provider: &&Arc<dyn CallProvider>| {
            let known = provider.members().iter().find(|(known, _)| *known == path);
            known.map(|(_, ty)| *ty)
        };
        let mut types = self.providers.iter().map(of);
        let first = types.next()??;
        types.all(|ty| ty == Some(first)).then_some(first)
    }
}

/// The path, as an author writes it.
fn name(operation: &Operation) -> String {
    let mut name = operation.root.name().to_owned();
    for member in &operation.members {
        name.push('.');
        name.push_str(member);
    }
    name
}
