//! The states of an endpoint and what leads from one to another. Nothing here knows of threads or clocks: each event
//! comes with its time.
//!
//! Three things take an endpoint out, each on its own, and it is well when none of them does:
//!
//! - Active checks: after so many bad ones in a row it is unhealthy, after so many good ones healthy again. Before the
//!   first check it is healthy.
//! - Ejection: after so many failed attempts in a row it is out for a time, which grows with each ejection. Once it has
//!   been in for [`Ejection::max_time`](crate::proxy::settings::health::Ejection), earlier ejections are forgotten.
//! - An operator, who drains it and restores it.

use std::time::Duration;

use tokio::time::Instant;

use super::{Cause, Rules};

/// A far time, for a clock that cannot count further.
const FAR: Duration = Duration::from_hours(100 * 365 * 24);

/// The state of one endpoint.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    rules: Rules,
    drained: bool,
    unhealthy: bool,
    /// How many checks in a row have said otherwise than `unhealthy`.
    contrary: u32,
    ejected: Option<Ejected>,
    /// How often it was ejected in succession, and when the last of these ended.
    ejections: u32,
    ended: Option<Instant>,
    /// When it last became well again.
    returned: Option<Instant>,
}

/// An ejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ejected {
    pub(super) until: Instant,
    pub(super) cause: Cause,
}

/// What has become of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It was ejected for this long.
    Ejected(Cause, Duration),
    /// Its ejection has ended.
    Readmitted,
    /// Checks found it unhealthy.
    Unhealthy,
    /// Checks found it healthy again.
    Healthy,
    /// An operator drained it.
    Drained,
    /// An operator restored it.
    Restored,
}

/// Whether an endpoint is out, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Out {
    /// It is well.
    No,
    /// Its ejection ends by itself.
    Until(Instant),
    /// Until something says otherwise.
    Open,
}

impl Machine {
    pub(super) const fn new(rules: Rules) -> Self {
        Self {
            rules,
            drained: false,
            unhealthy: false,
            contrary: 0,
            ejected: None,
            ejections: 0,
            ended: None,
            returned: None,
        }
    }

    /// An active check was `good` or not.
    pub(super) fn checked(&mut self, good: bool, now: Instant) -> Option<Change> {
        if good != self.unhealthy {
            self.contrary = 0;
            return None;
        }
        self.contrary = self.contrary.saturating_add(1);
        let wanted = if good { self.rules.healthy_after } else { self.rules.unhealthy_after };
        if self.contrary < wanted {
            return None;
        }
        self.contrary = 0;
        self.unhealthy = !good;
        self.may_have_returned(good, now);
        Some(if good { Change::Healthy } else { Change::Unhealthy })
    }

    /// Ejects it, unless it is ejected already. Earlier ejections have been [settled](Self::settle).
    pub(super) fn eject(&mut self, cause: Cause, now: Instant) -> Option<Change> {
        let ejection = self.rules.ejection?;
        if self.ejected.is_some() {
            return None;
        }
        let forgotten = |ended: Instant| now.duration_since(ended) >= ejection.max_time;
        if self.ended.is_none_or(forgotten) {
            self.ejections = 0;
        }
        self.ejections = self.ejections.saturating_add(1);
        let time = ejection.base_time.saturating_mul(self.ejections).min(ejection.max_time);
        let until = now.checked_add(time).unwrap_or(now + FAR);
        self.ejected = Some(Ejected { until, cause });
        Some(Change::Ejected(cause, time))
    }

    /// Ends an ejection whose time is up.
    pub(super) fn settle(&mut self, now: Instant) -> Option<Change> {
        let ejected = self.ejected.take_if(|ejected| ejected.until <= now)?;
        self.ended = Some(ejected.until);
        self.may_have_returned(true, ejected.until);
        Some(Change::Readmitted)
    }

    pub(super) fn drain(&mut self) -> Option<Change> {
        (!std::mem::replace(&mut self.drained, true)).then_some(Change::Drained)
    }

    pub(super) fn restore(&mut self, now: Instant) -> Option<Change> {
        let restored = std::mem::replace(&mut self.drained, false);
        self.may_have_returned(restored, now);
        restored.then_some(Change::Restored)
    }

    /// Whether it is out.
    pub(super) fn out(&self) -> Out {
        match self.ejected {
            _ if self.drained || self.unhealthy => Out::Open,
            Some(Ejected { until, .. }) => Out::Until(until),
            None => Out::No,
        }
    }

    /// When it last became well again, or will if nothing else happens.
    pub(super) fn returned(&self) -> Option<Instant> {
        match self.out() {
            Out::Until(until) => Some(until),
            Out::No | Out::Open => self.returned,
        }
    }

    pub(super) const fn is_drained(&self) -> bool {
        self.drained
    }

    pub(super) const fn is_unhealthy(&self) -> bool {
        self.unhealthy
    }

    pub(super) const fn ejected(&self) -> Option<Ejected> {
        self.ejected
    }

    /// How often it was ejected in succession.
    pub(super) const fn ejections(&self) -> u32 {
        self.ejections
    }

    /// One of the things that kept it out is over, if `over`. If that was the last, it returns.
    fn may_have_returned(&mut self, over: bool, now: Instant) {
        if over && self.out() == Out::No {
            self.returned = Some(now);
        }
    }
}
