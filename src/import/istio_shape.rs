//! What an Istio route changes in messages, and its faults on purpose.

use super::form::{Layer, Notes, Route};
use super::read::{Fields, Reading, short};
use super::write::duration;
use super::yaml::Tree;
use crate::source::Node;

/// Faults on purpose.
pub(super) fn fault(reading: &Reading<'_>, fields: &Fields<'_>, route: &mut Route) {
    let fault = fields.get("fault").and_then(|node| reading.fields("fault", node));
    let Some(fault) = fault else { return };
    for (key, value) in [("delay", "fixedDelay"), ("abort", "httpStatus")] {
        let Some(part) = fault.get(key) else { continue };
        let Some(part) = reading.fields(key, part) else { continue };
        let percent = part.get("percentage").and_then(|node| node.get("value"));
        let percent = percent.and_then(|node| reading.number("value", node)).unwrap_or(100.0);
        let mut with = vec![("share", Tree::word((percent / 100.0).clamp(0.0, 1.0)))];
        let what = part.get(value).and_then(|node| {
            if key == "delay" {
                return Some(("delay", duration(reading.duration(value, node)?)));
            }
            let status = reading.count(value, node)?;
            (400..600).contains(&status).then(|| ("status", Tree::word(status)))
        });
        let mut notes = Notes::default();
        part.rest(reading, &format!("`fault.{key}`"), &mut notes);
        let Some(what) = what else {
            route.notes.lost(reading.at(part.span), format!("`fault.{key}`."));
            continue;
        };
        with.push(what);
        let name = "mwl-proxy/fault";
        route.layers.push(Layer::Other { name, with, notes });
    }
    fault.rest(reading, "`fault`", &mut route.notes);
}

/// Changes of header fields.
pub(super) fn headers(reading: &Reading<'_>, fields: &Fields<'_>, route: &mut Route) {
    let Some(headers) = fields.get("headers").and_then(|node| reading.fields("headers", node))
    else {
        return;
    };
    for (side, edits) in
        [("request", &mut route.request_headers), ("response", &mut route.response_headers)]
    {
        let Some(part) = headers.get(side).and_then(|node| reading.fields(side, node)) else {
            continue;
        };
        for (key, into) in [("set", &mut edits.set), ("add", &mut edits.append)] {
            for member in part.get(key).and_then(Node::as_object).unwrap_or_default() {
                let value = member.value.as_str().map_or("", |value| value);
                if super::headers::may_change(&member.key, value, side == "request") {
                    into.push((member.key.to_string(), value.to_owned()));
                } else {
                    let text = format!("`{key}` of the field `{}`.", short(&member.key));
                    route.notes.lost(reading.at(member.key_span), text);
                }
            }
        }
        for field in part.get("remove").and_then(Node::as_array).unwrap_or_default() {
            let text = field.as_str().map_or("", |text| text);
            if super::headers::may_change(text, "", side == "request") {
                edits.remove.push(text.to_owned());
            } else {
                let text = format!("`remove` of the field `{}`.", short(text));
                route.notes.lost(reading.at(field.span), text);
            }
        }
        part.rest(reading, "`headers`", &mut route.notes);
    }
    headers.rest(reading, "`headers`", &mut route.notes);
}
