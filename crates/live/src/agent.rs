//! An agent serves one host: it opens ends when told, runs each on a thread of its own, and passes on what they
//! measure.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trunkline_io::Clock;
use trunkline_io::usage::CpuTime;

use crate::bundles::Desk;
use crate::end::{self, Control};
use crate::station::Station;
use crate::wire::{self, EndId, Order, Reader, Word};

/// How often an agent says that it is alive, and passes on what its ends have measured so far.
const BEAT: Duration = Duration::from_millis(500);

/// The one way out, shared by all threads of an agent.
#[derive(Clone, Debug)]
pub struct Voice(Arc<Mutex<UnixStream>>);

impl Voice {
    /// Says a word; if nobody listens any more, nothing is lost that somebody would have heard.
    pub fn say(&self, word: &Word) {
        if let Ok(mut stream) = self.0.lock() {
            let _ = wire::write(&mut *stream, word);
        }
    }
}

/// Serves a controller until it says goodbye or goes away.
pub fn serve(stream: UnixStream) {
    let Ok(out) = stream.try_clone() else { return };
    let voice = Voice(Arc::new(Mutex::new(out)));
    let ends: Ends = Arc::default();
    let (leaving, leave) = mpsc::channel::<()>();
    let beat = {
        let (voice, ends) = (voice.clone(), Arc::downgrade(&ends));
        std::thread::spawn(move || {
            while let Some(ends) = ends.upgrade() {
                voice.say(&Word::Alive);
                let now: Vec<Arc<Control>> =
                    ends.lock().map(|e| e.values().cloned().collect()).unwrap_or_default();
                drop(ends);
                now.iter().for_each(|control| control.pass_on(&voice));
                if leave.recv_timeout(BEAT) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
        })
    };
    let desk = obey(stream, &voice, &ends);
    // The controller is gone, or wants no more: nothing may send on.
    if let Ok(ends) = ends.lock() {
        ends.values().for_each(|control| control.stop());
    }
    drop(ends);
    if let Some(counts) = desk.and_then(|desk| desk.close()) {
        voice.say(&Word::Counted(counts));
    }
    let used = CpuTime::of_this_process();
    voice.say(&Word::Used(used.user.as_s(), used.system.as_s()));
    drop((voice, leaving));
    let _ = beat.join();
}

type Ends = Arc<Mutex<BTreeMap<EndId, Arc<Control>>>>;

/// Does what it is told; what bundles here at the end.
fn obey(stream: UnixStream, voice: &Voice, ends: &Ends) -> Option<Desk> {
    let mut orders = Reader::new(stream);
    let mut clock = Clock::start();
    let mut station = Err("the host has none".to_owned());
    let mut desk = None;
    let to = |id: EndId| ends.lock().ok().and_then(|e| e.get(&id).cloned());
    while let Ok(Some(order)) = orders.read::<Order>() {
        match order {
            Order::Hello { epoch_ns, station: place, bundles } => {
                clock = Clock::at(epoch_ns);
                if let Some(place) = place {
                    station = Station::attach(&place, clock);
                }
                if let Some(place) = bundles {
                    match Desk::open(*place, clock, voice) {
                        Ok(open) => desk = Some(open),
                        Err(why) => voice.say(&Word::Unable(why)),
                    }
                }
            }
            Order::Prepare(spec) => {
                let id = spec.id;
                let (control, threads) =
                    end::prepare(*spec, clock, voice.clone(), (station.clone(), desk.clone()));
                if let Ok(mut ends) = ends.lock() {
                    // Ends that are over make room: a long repeat opens many.
                    ends.retain(|_, c| !c.is_over());
                    ends.insert(id, control);
                }
                drop(threads); // detached: an end reports by itself
            }
            Order::Start(id, at) => to(id).into_iter().for_each(|c| c.start(at)),
            Order::Finish(id, messages) => to(id).into_iter().for_each(|c| c.finish(messages, clock.now())),
            Order::Stop(id) => to(id).into_iter().for_each(|c| c.stop()),
            Order::Bye => break,
        }
    }
    desk
}
