//! Windows for what the other side sends (RFC 9113 §5.2, §6.9).

/// The window of a stream or of a connection.
#[derive(Debug)]
pub(super) struct Received {
    /// How much the other side may still send. Negative after our own settings have lowered it.
    window: i64,
    /// How much was received and not released.
    in_flight: u32,
    /// How much was released and not told the other side yet.
    released: u32,
}

impl Received {
    /// A window of this size.
    pub(super) const fn new(window: i64) -> Self {
        Self { window, in_flight: 0, released: 0 }
    }

    /// Whether so much may be received.
    pub(super) fn allows(&self, size: u32) -> bool {
        i64::from(size) <= self.window
    }

    /// So much was received.
    pub(super) fn receive(&mut self, size: u32) {
        self.window -= i64::from(size);
        self.in_flight = self.in_flight.saturating_add(size);
    }

    /// So much of it was worked on. Returns whether the other side should be told now.
    pub(super) fn release(&mut self, size: u32) -> bool {
        let size = size.min(self.in_flight);
        self.in_flight -= size;
        self.released = self.released.saturating_add(size);
        self.is_due()
    }

    /// How much was received and not released.
    pub(super) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether enough was released to tell the other side: half of what it still may send.
    fn is_due(&self) -> bool {
        self.released > 0 && i64::from(self.released) >= self.window / 2
    }

    /// What to tell the other side, if enough was released. It is told so.
    pub(super) fn update(&mut self) -> Option<u32> {
        if !self.is_due() {
            return None;
        }
        self.window += i64::from(self.released);
        Some(std::mem::take(&mut self.released))
    }

    /// Changes the window by so much.
    pub(super) const fn change(&mut self, by: i64) {
        self.window += by;
    }

    /// Enlarges it by so much, which the other side does not know yet.
    pub(super) const fn enlarge(&mut self, by: u32) {
        self.released = self.released.saturating_add(by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_window_is_told_at_once() {
        let mut window = Received::new(100);
        assert!(window.allows(100) && !window.allows(101));
        window.receive(60);
        assert!(!window.allows(41));
        assert!(!window.release(10) && window.update().is_none());
        assert!(window.release(10));
        assert_eq!((window.update(), window.in_flight()), (Some(20), 40));
        assert!(window.allows(60) && window.update().is_none());
        // Nobody can release more than was received.
        window.release(1000);
        assert_eq!(window.update(), Some(40));
        assert!(window.allows(100) && !window.allows(101));
    }
}
