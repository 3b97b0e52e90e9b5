//! The discrete Fourier transform, of any length.
//!
//! Implemented here, because draws must be equal on every machine. The available crates select vector instructions by
//! processor and use the system's sine, so their last digits differ.

use std::f64::consts::PI;

/// A complex number: real and imaginary part.
pub(crate) type Complex = (f64, f64);

fn times(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

/// `exp(−i·angle)`.
fn unit(angle: f64) -> Complex {
    let (sin, cos) = libm::sincos(angle);
    (cos, -sin)
}

/// Transforms a power of two of values in place: X_k = Σ x_t exp(−2πi k t / n) (Cooley and Tukey 1965).
///
/// # Panics
/// If the length is not a power of two.
pub(crate) fn radix_2(data: &mut [Complex]) {
    let n = data.len();
    assert!(n.is_power_of_two(), "a length of {n}");
    if n == 1 {
        return;
    }
    let bits = n.trailing_zeros();
    for i in 0..n {
        let j = i.reverse_bits() >> (usize::BITS - bits);
        if i < j {
            data.swap(i, j);
        }
    }
    // The roots of a stage are every second, fourth, … root of the last stage; they are stored contiguously.
    let roots: Vec<Complex> = (0..n / 2).map(|k| unit(2.0 * PI * k as f64 / n as f64)).collect();
    let mut stage = Vec::with_capacity(n / 2);
    let mut half = 1;
    while half < n {
        stage.clear();
        stage.extend(roots.iter().step_by(n / 2 / half));
        for block in data.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for ((a, b), root) in low.iter_mut().zip(high).zip(&stage) {
                let rotated = times(*b, *root);
                *b = (a.0 - rotated.0, a.1 - rotated.1);
                *a = (a.0 + rotated.0, a.1 + rotated.1);
            }
        }
        half *= 2;
    }
}

/// Returns the transform of real values of any length, by a convolution of a power of two (Bluestein 1970).
pub(crate) fn forward(values: &[f64]) -> Vec<Complex> {
    let n = values.len();
    if n.is_power_of_two() {
        let mut data: Vec<Complex> = values.iter().map(|v| (*v, 0.0)).collect();
        radix_2(&mut data);
        return data;
    }
    if n == 0 {
        return Vec::new();
    }
    // exp(−πi k² / n), with k² modulo 2n for precision.
    let chirp: Vec<Complex> = (0..n as u64)
        .map(|k| unit(PI * ((u128::from(k) * u128::from(k)) % (2 * n as u128)) as f64 / n as f64))
        .collect();
    let size = (2 * n - 1).next_power_of_two();
    let mut a = vec![(0.0, 0.0); size];
    let mut b = vec![(0.0, 0.0); size];
    for (k, c) in chirp.iter().enumerate() {
        a[k] = (c.0 * values[k], c.1 * values[k]);
        b[k] = (c.0, -c.1);
        b[(size - k) % size] = b[k];
    }
    radix_2(&mut a);
    radix_2(&mut b);
    a.iter_mut().zip(&b).for_each(|(a, b)| *a = times(*a, *b));
    // The inverse is the transform of the conjugate, conjugated.
    a.iter_mut().for_each(|a| a.1 = -a.1);
    radix_2(&mut a);
    let scale = 1.0 / size as f64;
    chirp.iter().zip(&a).map(|(c, a)| times(*c, (a.0 * scale, -a.1 * scale))).collect()
}

/// Returns |X_k|² / n for k = 1 … ⌊n/2⌋, of the values minus their mean: a periodogram whose mean is the variance.
pub(crate) fn periodogram(values: &[f64]) -> Vec<f64> {
    let n = values.len();
    let mean = values.iter().sum::<f64>() / n.max(1) as f64;
    let centred: Vec<f64> = values.iter().map(|v| v - mean).collect();
    let spectrum = forward(&centred);
    (1..=n / 2).map(|k| (spectrum[k].0 * spectrum[k].0 + spectrum[k].1 * spectrum[k].1) / n as f64).collect()
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::*;

    #[test]
    fn the_transform_equals_its_definition() {
        let mut stream = Seed(3).stream("fft");
        for n in [1usize, 2, 3, 5, 8, 12, 64, 97, 100, 257] {
            let values: Vec<f64> = (0..n).map(|_| stream.unit() - 0.5).collect();
            for (k, actual) in forward(&values).into_iter().enumerate() {
                let mut want = (0.0, 0.0);
                for (t, v) in values.iter().enumerate() {
                    let root = unit(2.0 * PI * ((k * t) % n) as f64 / n as f64);
                    want = (want.0 + v * root.0, want.1 + v * root.1);
                }
                let error = libm::hypot(actual.0 - want.0, actual.1 - want.1);
                assert!(error < 1e-11, "n = {n}, k = {k}: {actual:?} for {want:?}");
            }
        }
        assert!(forward(&[]).is_empty());
    }

    #[test]
    fn a_periodogram_contains_the_variance() {
        let mut stream = Seed(4).stream("fft");
        for n in [9usize, 10, 1000, 1024] {
            let values: Vec<f64> = (0..n).map(|_| stream.unit()).collect();
            let mean = values.iter().sum::<f64>() / n as f64;
            let sum: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
            // Every frequency, except the highest of an even length, also represents its mirror image.
            let power = periodogram(&values);
            let last = if n % 2 == 0 { power[power.len() - 1] } else { 0.0 };
            let total = 2.0 * power.iter().sum::<f64>() - last;
            assert!((total - sum).abs() < 1e-9 * sum, "n = {n}: {total} for {sum}");
        }
    }
}
