//! Labelled samples, and the minibatches that a worker draws from its share of them.

use ndarray::Array2;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Samples of equal size with a class each. Features stay bytes: 60,000 images are 47 MB in every worker, and not 188.
#[derive(Clone, Debug)]
pub struct Dataset {
    features: usize,
    classes: usize,
    brightest: u8,
    values: Vec<u8>,
    labels: Vec<u8>,
}

/// Why numbers are no data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatasetError {
    /// Nothing to learn from.
    #[error("it has no samples")]
    Empty,
    /// Samples and labels do not match.
    #[error("{labels} labels need {} feature values of {features} each, and there are {values}", labels * features)]
    Length {
        /// Labels.
        labels: usize,
        /// Features of a sample.
        features: usize,
        /// Feature values of all samples.
        values: usize,
    },
    /// No such class.
    #[error("sample {sample} has label {label}, and the classes are 0 to {}", classes - 1)]
    Label {
        /// Its number, from 0.
        sample: usize,
        /// Its label.
        label: u8,
        /// Number of classes.
        classes: usize,
    },
}

impl Dataset {
    /// `values` holds `features` bytes for every label; they are scaled by `brightest` to 0..=1.
    ///
    /// # Errors
    /// If the lengths do not fit each other, or a label is not below `classes`.
    pub fn new(
        features: usize,
        classes: usize,
        brightest: u8,
        values: Vec<u8>,
        labels: Vec<u8>,
    ) -> Result<Self, DatasetError> {
        if labels.is_empty() || features == 0 {
            return Err(DatasetError::Empty);
        }
        if values.len() != labels.len() * features {
            return Err(DatasetError::Length { labels: labels.len(), features, values: values.len() });
        }
        if let Some((sample, &label)) = labels.iter().enumerate().find(|(_, label)| usize::from(**label) >= classes) {
            return Err(DatasetError::Label { sample, label, classes });
        }
        Ok(Dataset { features, classes, brightest: brightest.max(1), values, labels })
    }

    /// Number of samples, at least 1.
    #[allow(clippy::len_without_is_empty)] // none is empty
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Features of a sample.
    pub fn features(&self) -> usize {
        self.features
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Takes the last `samples` away into a set of their own; at least one stays on either side.
    pub fn split_off(&mut self, samples: usize) -> Dataset {
        let at = self.len().saturating_sub(samples).clamp(1, self.len());
        let labels = self.labels.split_off(at);
        let values = self.values.split_off(at * self.features);
        Dataset { labels, values, ..*self }
    }

    /// Keeps the first `samples`, at least one.
    pub fn truncate(&mut self, samples: usize) {
        self.labels.truncate(samples.max(1));
        self.values.truncate(self.labels.len() * self.features);
    }

    /// These samples.
    ///
    /// # Panics
    /// If an index is not below [`Self::len`].
    pub fn batch(&self, indices: &[u32]) -> Batch {
        let scale = 1.0 / f32::from(self.brightest);
        let mut inputs = Array2::zeros((indices.len(), self.features));
        for (mut row, &index) in inputs.outer_iter_mut().zip(indices) {
            let values = &self.values[index as usize * self.features..][..self.features];
            row.iter_mut().zip(values).for_each(|(input, &value)| *input = f32::from(value) * scale);
        }
        let labels = indices.iter().map(|&index| usize::from(self.labels[index as usize])).collect();
        Batch { inputs, labels }
    }
}

/// Some samples, ready for the network.
#[derive(Clone, Debug)]
pub struct Batch {
    /// One row a sample, 0..=1.
    pub inputs: Array2<f32>,
    /// Their classes.
    pub labels: Vec<usize>,
}

/// Draws a worker's minibatches: every sample of its share once, in random order, then again in another.
#[derive(Clone, Debug)]
pub struct Sampler {
    rng: ChaCha8Rng,
    share: Vec<u32>,
    next: usize,
    batch: Vec<u32>,
}

impl Sampler {
    /// Worker `worker` of `workers` owns every `workers`-th of the samples. Equal arguments give equal draws.
    ///
    /// # Panics
    /// If there are fewer samples than workers, or no such worker.
    pub fn new(samples: usize, seed: u64, worker: u32, workers: u32) -> Self {
        assert!(worker < workers && samples >= workers as usize, "every worker needs a sample");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(1 + u64::from(worker)); // 0 made the network
        let share: Vec<u32> = (worker..samples as u32).step_by(workers as usize).collect();
        let next = share.len(); // shuffled before the first draw
        Sampler { rng, share, next, batch: Vec::new() }
    }

    /// Indices of the next `size` samples.
    pub fn next(&mut self, size: usize) -> &[u32] {
        self.batch.clear();
        while self.batch.len() < size {
            if self.next == self.share.len() {
                self.shuffle();
                self.next = 0;
            }
            let take = (size - self.batch.len()).min(self.share.len() - self.next);
            self.batch.extend_from_slice(&self.share[self.next..self.next + take]);
            self.next += take;
        }
        &self.batch
    }

    /// Fisher and Yates. The bias of the remainder is below 2^-32 for any data set that fits.
    fn shuffle(&mut self) {
        for last in (1..self.share.len()).rev() {
            let other = (self.rng.next_u64() % (last as u64 + 1)) as usize;
            self.share.swap(last, other);
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Three noisy clusters in 8 dimensions.
    pub fn blobs(samples: usize, seed: u64) -> Dataset {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let labels: Vec<u8> = (0..samples).map(|sample| (sample % 3) as u8).collect();
        let value = |label: u8, feature: usize, noise: u64| {
            let centre = if feature % 3 == usize::from(label) { 140 } else { 80 };
            (centre + (noise % 61)) as u8
        };
        let values = labels
            .iter()
            .flat_map(|label| (0..8).map(|feature| (*label, feature)))
            .map(|(label, feature)| value(label, feature, rng.next_u64()))
            .collect();
        Dataset::new(8, 3, 255, values, labels).expect("lengths fit")
    }

    #[test]
    fn numbers_that_do_not_fit_each_other_are_refused() {
        let new = |values: &[u8], labels: &[u8]| Dataset::new(2, 3, 255, values.to_vec(), labels.to_vec()).err();
        assert_eq!(new(&[], &[]), Some(DatasetError::Empty));
        assert_eq!(new(&[1, 2, 3], &[0, 1]), Some(DatasetError::Length { labels: 2, features: 2, values: 3 }));
        assert_eq!(new(&[1, 2, 3, 4], &[0, 3]), Some(DatasetError::Label { sample: 1, label: 3, classes: 3 }));
        assert_eq!(new(&[1, 2, 3, 4], &[0, 2]), None);
    }

    #[test]
    fn a_batch_holds_the_samples_asked_for_scaled_to_one() {
        let data = Dataset::new(2, 2, 16, vec![0, 16, 8, 4], vec![1, 0]).expect("fits");
        let batch = data.batch(&[1, 0, 1]);
        assert_eq!(batch.inputs, ndarray::array![[0.5, 0.25], [0.0, 1.0], [0.5, 0.25]]);
        assert_eq!(batch.labels, [0, 1, 0]);
    }

    #[test]
    fn a_set_is_split_and_cut_between_samples() {
        let mut data = blobs(10, 1);
        let mut rest = data.split_off(4);
        assert_eq!((data.len(), rest.len()), (6, 4));
        assert_eq!(rest.batch(&[0]).inputs, blobs(10, 1).batch(&[6]).inputs);
        rest.truncate(2);
        assert_eq!((rest.len(), rest.values.len()), (2, 16));
    }

    #[test]
    fn workers_draw_each_sample_of_their_own_share_once_an_epoch() {
        let mut seen: Vec<u32> = Vec::new();
        for worker in 0..3 {
            let mut sampler = Sampler::new(30, 5, worker, 3);
            let mut epoch = sampler.next(4).to_vec();
            epoch.extend_from_slice(sampler.next(6));
            assert!(epoch.iter().all(|sample| sample % 3 == worker));
            seen.extend(epoch);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..30).collect::<Vec<_>>());
    }

    #[test]
    fn draws_depend_on_seed_and_worker_alone_and_batches_may_span_epochs() {
        let draw = |seed, worker| Sampler::new(10, seed, worker, 2).next(12).to_vec();
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(2, 0));
        assert_eq!(draw(1, 1).len(), 12);
    }
}
