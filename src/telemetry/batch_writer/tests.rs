use std::sync::Condvar;

use super::*;

/// A writer that waits until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<Written>, Condvar)>);

#[derive(Default)]
struct Written {
    open: bool,
    /// Whether a write waits, or has waited.
    reached: bool,
    bytes: Vec<u8>,
    writes: usize,
}

impl Gate {
    fn opened() -> Self {
        let gate = Self::default();
        gate.open();
        gate
    }

    fn open(&self) {
        self.0.0.lock().unwrap().open = true;
        self.0.1.notify_all();
    }

    /// Waits until a write waits.
    fn reached(&self) {
        let (state, changed) = &*self.0;
        drop(changed.wait_while(state.lock().unwrap(), |state| !state.reached).unwrap());
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.0.lock().unwrap().bytes.clone()).unwrap()
    }
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        state.reached = true;
        changed.notify_all();
        let mut state = changed.wait_while(state, |state| !state.open).unwrap();
        state.bytes.extend_from_slice(bytes);
        state.writes += 1;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn start(out: impl Write + Send + 'static) -> BatchWriter<u64> {
    let dropped = IntCounter::new("dropped", "x").unwrap();
    let told = LogLimiter::new("Lines were dropped.", None);
    BatchWriter::start("lines", (dropped, told), out).unwrap()
}

/// Appends `text` behind how many lines this thread has appended.
fn append(lines: &BatchWriter<u64>, text: &str) {
    lines.append(|count, out| {
        writeln!(out, "{count} {text}").unwrap();
        *count += 1;
    });
}

#[test]
fn the_lines_of_each_thread_are_written_in_their_order() {
    let gate = Gate::opened();
    let lines = Arc::new(start(gate.clone()));
    let threads: Vec<_> = ["a", "b"]
        .map(|name| {
            let lines = Arc::clone(&lines);
            thread::spawn(move || (0..20_000).for_each(|_| append(&lines, name)))
        })
        .into();
    for thread in threads {
        thread.join().unwrap();
    }
    lines.flush(Duration::MAX);
    let text = gate.text();
    assert_eq!((text.lines().count(), lines.dropped()), (40_000, 0));
    for name in ["a", "b"] {
        let numbers = text.lines().filter_map(|line| line.strip_suffix(name)).map(str::trim);
        assert!(numbers.eq((0..20_000).map(|number| number.to_string())), "{name}");
    }
}

#[test]
fn under_load_one_write_carries_many_lines() {
    let gate = Gate::default();
    let lines = start(gate.clone());
    append(&lines, "first");
    gate.reached();
    (0..5000).for_each(|_| append(&lines, "more"));
    gate.open();
    lines.flush(Duration::MAX);
    assert_eq!((gate.text().lines().count(), gate.0.0.lock().unwrap().writes), (5001, 2));
}

#[test]
fn a_writer_that_stalls_costs_lines_and_no_time() {
    let gate = Gate::default();
    let lines = start(gate.clone());
    append(&lines, "");
    // From here on the thread takes nothing.
    gate.reached();
    let long = "x".repeat(64 * 1024);
    let room = u64::try_from(WAITING / long.len()).unwrap();
    (0..3 * room).for_each(|_| append(&lines, &long));
    assert_eq!(lines.dropped(), 2 * room, "the buffer is bounded");
    gate.open();
    lines.flush(Duration::MAX);
    let kept = gate.text();
    let numbers = kept.lines().map(|line| line.split(' ').next().unwrap());
    assert!(
        numbers.eq((0..=room).map(|number| number.to_string())),
        "each is written or counted; the newest are dropped"
    );
}

#[test]
fn what_cannot_be_written_is_counted() {
    struct Broken;
    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let lines = start(Broken);
    (0..5).for_each(|_| append(&lines, ""));
    lines.flush(Duration::MAX);
    assert_eq!(lines.dropped(), 5);
}

#[test]
fn whoever_stops_appending_leaves_no_line_behind() {
    let gate = Gate::opened();
    let lines = start(gate.clone());
    let shared = Arc::downgrade(&lines.shared);
    (0..3).for_each(|_| append(&lines, "last"));
    drop(lines);
    while shared.strong_count() > 0 {
        thread::yield_now();
    }
    assert_eq!(gate.text(), "0 last\n1 last\n2 last\n");
}
