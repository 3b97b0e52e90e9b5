//! Admission of connections to a line (call admission control): whether one more fits, by what each declares or by what
//! is measured.
//!
//! | method | a line is full when | what it needs to know |
//! | --- | --- | --- |
//! | [`Method::Peak`] | the peak rates exceed it | peak rates |
//! | [`Method::Equivalent`] | the equivalent bandwidth of all exceeds it | peak and mean rates, mean burst, the buffer |
//! | [`Method::Measured`] | the measured rate, with a margin for the peaks, exceeds it | peak rates, measurements |
//!
//! [`onoff`] simulates sources on a line to compare the losses with the target.

pub mod onoff;

use trunkline_units::{Rate, Size, Span};

/// What a connection declares about its traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Largest rate.
    pub peak: Rate,
    /// Mean rate, at most the peak.
    pub mean: Rate,
    /// Mean duration of a burst at the peak rate.
    pub burst: Span,
}

/// How a line decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By peak rates: never a loss, and no gain from multiplexing.
    Peak,
    /// By equivalent bandwidth (Guérin, Ahmadi, Naghshineh: Equivalent capacity and its application to bandwidth allocation
    /// in high-speed networks, IEEE JSAC 9(7), 1991).
    Equivalent,
    /// By the measured rate and Hoeffding's bound (Floyd: Comments on measurement-based admissions control for
    /// controlled-load services, 1996).
    Measured,
}

/// A line that admits connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Its rate.
    pub capacity: Rate,
    /// Its buffer.
    pub buffer: Size,
    /// Largest share of the traffic that may be lost, between 0 and 1.
    pub loss: f64,
}

/// Why a connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{method} of {connections} connections would be {needed}; the line has {capacity}")]
pub struct Refused {
    /// What was compared with the line: `the peak rate`, …
    pub method: &'static str,
    /// Number of connections, with the refused one.
    pub connections: usize,
    /// What they need.
    pub needed: Rate,
    /// What there is.
    pub capacity: Rate,
}

impl Line {
    /// Decides whether `new` may join the connections in `admitted`. `measured` is the mean rate of those, which only
    /// [`Method::Measured`] uses.
    ///
    /// # Errors
    /// What the connections need, if the line has less.
    pub fn admit(
        &self,
        method: Method,
        admitted: &[Descriptor],
        new: Descriptor,
        measured: Rate,
    ) -> Result<(), Refused> {
        let all: Vec<Descriptor> = admitted.iter().copied().chain([new]).collect();
        let (name, needed) = match method {
            Method::Peak => ("the peak rate", sum(&all, |d| d.peak)),
            Method::Equivalent => ("the equivalent bandwidth", self.equivalent(&all)),
            Method::Measured => ("the measured rate with its margin", self.measured(admitted, new, measured)),
        };
        let needed = Rate::from_bps(libm::ceil(needed) as u64);
        match needed <= self.capacity {
            true => Ok(()),
            false => Err(Refused { method: name, connections: all.len(), needed, capacity: self.capacity }),
        }
    }

    /// Returns the equivalent bandwidth of connections in b/s: the sum of those of each alone in this buffer, or that of
    /// normally distributed rates without a buffer, whichever is less (equations 2, 7 and 8 of the paper).
    pub fn equivalent(&self, all: &[Descriptor]) -> f64 {
        let alone: f64 = all.iter().map(|descriptor| self.equivalent_alone(descriptor)).sum();
        let mean = sum(all, |d| d.mean);
        let variance: f64 = all.iter().map(|d| bps(d.mean) * (bps(d.peak) - bps(d.mean)).max(0.0)).sum();
        let normal = mean + self.deviations() * libm::sqrt(variance);
        alone.min(normal)
    }

    /// Returns the equivalent bandwidth of a connection alone in b/s: at this rate it would lose the permitted share.
    ///
    /// ```
    /// use trunkline_models::atm::admission::{Descriptor, Line};
    /// use trunkline_units::{Rate, Size, Span};
    /// let line = Line { capacity: Rate::from_bps(45_000_000), buffer: Size::from_bytes(375_000), loss: 1e-5 };
    /// let source = |ms| Descriptor { peak: Rate::from_bps(4_000_000), mean: Rate::from_bps(1_000_000), burst: Span::from_ms(ms) };
    /// // The mean for short bursts, the peak for long ones.
    /// assert!(line.equivalent_alone(&source(1)) < 1.1e6 && line.equivalent_alone(&source(100_000)) > 3.8e6);
    /// ```
    pub fn equivalent_alone(&self, descriptor: &Descriptor) -> f64 {
        let (peak, share) = (bps(descriptor.peak), bps(descriptor.mean) / bps(descriptor.peak).max(1.0));
        let y = libm::log(1.0 / self.loss) * descriptor.burst.as_s() * (1.0 - share) * peak;
        if y <= 0.0 {
            return bps(descriptor.mean);
        }
        let x = self.buffer.as_bytes() as f64 * 8.0;
        peak * (y - x + libm::sqrt((y - x) * (y - x) + 4.0 * x * share * y)) / (2.0 * y)
    }

    /// Standard deviations above the mean rate that a normal distribution exceeds with the permitted probability, by the
    /// bound of the paper.
    fn deviations(&self) -> f64 {
        let double_log = -2.0 * libm::log(self.loss) - libm::log(2.0 * std::f64::consts::PI);
        libm::sqrt(double_log.max(0.0))
    }

    /// Returns the measured rate, the margin by which independent connections with the peaks of those admitted exceed their
    /// mean with at most the permitted probability (Hoeffding's inequality), and the peak of the new connection.
    fn measured(&self, admitted: &[Descriptor], new: Descriptor, measured: Rate) -> f64 {
        let squares: f64 = admitted.iter().map(|d| bps(d.peak) * bps(d.peak)).sum();
        bps(measured) + bps(new.peak) + libm::sqrt(libm::log(1.0 / self.loss) / 2.0 * squares)
    }
}

fn bps(rate: Rate) -> f64 {
    rate.as_bps() as f64
}

fn sum(all: &[Descriptor], rate: impl Fn(&Descriptor) -> Rate) -> f64 {
    all.iter().map(|descriptor| bps(rate(descriptor))).sum()
}
