//! Random Flows.

use super::*;

fn code() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("Script.A"), Just("Script.B")]
}

fn pattern() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        3 => Just("*"),
        2 => Just("Script.A"),
        1 => Just("Script.*"),
        1 => Just("System.*"),
        1 => Just(EXCEEDED),
    ]
}

/// All waits are even and the instant of the cancellation is odd, as in `laws`.
fn even(least: u64, most: u64) -> impl Strategy<Value = u64> {
    (least..=most).prop_map(|half| 2 * half)
}

fn layers(most: usize) -> impl Strategy<Value = Vec<Layer>> {
    let layer = prop_oneof![
        3 => (pattern(), 1..4_u32, even(0, 15)).prop_map(|(code, attempts, delay)| Layer::Retry {
            code,
            attempts,
            delay
        }),
        3 => even(0, 80).prop_map(Layer::Timeout),
        1 => (1..4_u32).prop_map(Layer::Loop),
        3 => (even(0, 30), proptest::bool::weighted(0.3))
            .prop_map(|(after, fails)| Layer::Finally { after, fails }),
    ];
    proptest::collection::vec(layer, 0..=most)
}

fn script() -> impl Strategy<Value = Target> {
    let turn = (even(0, 30), proptest::option::weighted(0.5, code()));
    proptest::collection::vec(turn, 1..4).prop_map(Target::Script)
}

fn arms() -> impl Strategy<Value = Arms> {
    prop_oneof![
        6 => Just(Arms::Nothing),
        2 => (0..4_u64).prop_map(Arms::Give),
        1 => Just(Arms::Fault),
    ]
}

fn step_over(target: BoxedStrategy<Target>) -> impl Strategy<Value = Step> {
    let call = (target, arms()).prop_map(|(target, arms)| Call { target, arms }).boxed();
    let catch = proptest::collection::vec((pattern(), 0..8_usize), 0..3).boxed();
    let form = prop_oneof![
        (proptest::collection::vec(0..4_u64, 0..4), call.clone())
            .prop_map(|(elements, call)| Form::Over(elements, call)),
        proptest::collection::vec(call.clone(), 1..4).prop_map(Form::Calls),
    ];
    prop_oneof![
        1 => proptest::option::of(0..4_u64).prop_map(Step::Pass),
        1 => (0..4_u64, 0..8_usize).prop_map(|(number, jump)| Step::Match(number, jump)),
        1 => even(0, 20).prop_map(Step::Sleep),
        1 => (0..8_usize, 1..3_u64).prop_map(|(jump, times)| Step::Back(jump, times)),
        4 => (call, layers(3), catch.clone()).prop_map(|(call, stack, catch)| Step::Call {
            call,
            stack,
            catch,
        }),
        3 => (
            form,
            proptest::bool::weighted(0.1),
            proptest::option::of(1..4_usize),
            proptest::option::weighted(0.7, (0..5_usize, any::<bool>())),
            catch,
        )
            .prop_map(|(form, faults, concurrency, completion, catch)| Step::Gather {
                form,
                faults,
                concurrency,
                completion,
                catch,
            }),
    ]
}

fn flow_over(target: BoxedStrategy<Target>) -> impl Strategy<Value = Flow> {
    let steps = proptest::collection::vec(step_over(target), 1..5);
    (layers(2), steps).prop_map(|(stack, steps)| Flow { stack, steps })
}

pub(super) fn case() -> impl Strategy<Value = Case> {
    let target = script().boxed().prop_recursive(3, 24, 3, |target| {
        prop_oneof![script(), flow_over(target).prop_map(|flow| Target::Flow(Box::new(flow))),]
    });
    let cancel = proptest::option::weighted(0.4, (0..100_u64).prop_map(|half| 2 * half + 1));
    (flow_over(target.boxed()), cancel).prop_map(|(flow, cancel)| Case { flow, cancel })
}
