//! A multilayer perceptron: ReLU between layers, softmax and cross entropy at the end.

use ndarray::{Array2, ArrayView1, ArrayView2, ArrayViewMut1, ArrayViewMut2, Axis, Zip};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::dataset::{Batch, Dataset};

/// Images at a time when accuracy is taken: bounds the memory.
const EVALUATION_BATCH: usize = 500;

/// Sizes of the layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Features of a sample.
    pub inputs: usize,
    /// Units of each hidden layer; none: softmax regression.
    pub hidden: Vec<usize>,
    /// Classes.
    pub classes: usize,
}

impl Shape {
    /// Number of weights and biases.
    pub fn parameters(&self) -> usize {
        self.layers().map(|(from, to)| (from + 1) * to).sum()
    }

    /// (inputs, outputs) of each layer in order.
    fn layers(&self) -> impl Iterator<Item = (usize, usize)> {
        let from = std::iter::once(self.inputs).chain(self.hidden.iter().copied());
        from.zip(self.hidden.iter().copied().chain(std::iter::once(self.classes)))
    }
}

/// The network. All parameters are one vector, so that it can be summed with others': layer by layer the weights, one row
/// for each input, then the biases.
#[derive(Clone, Debug)]
pub struct Mlp {
    shape: Shape,
    parameters: Vec<f32>,
}

impl Mlp {
    /// He's initialisation (uniform, 1502.01852): biases 0, weights within sqrt(6/inputs). Equal seeds give equal networks.
    pub fn new(shape: Shape, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut parameters = Vec::with_capacity(shape.parameters());
        for (from, to) in shape.layers() {
            let bound = (6.0 / from as f64).sqrt();
            let unit = |bits: u64| (bits >> 11) as f64 / (1u64 << 53) as f64;
            parameters.extend((0..from * to).map(|_| ((2.0 * unit(rng.next_u64()) - 1.0) * bound) as f32));
            parameters.extend(std::iter::repeat_n(0.0, to));
        }
        Mlp { shape, parameters }
    }

    /// The sizes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// All weights and biases.
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// The same, to be changed.
    pub fn parameters_mut(&mut self) -> &mut [f32] {
        &mut self.parameters
    }

    /// Writes the gradient of the batch's mean cross entropy into `gradient`, and returns the cross entropy.
    ///
    /// # Panics
    /// If the batch or `gradient` does not fit the shape.
    pub fn gradient(&self, batch: &Batch, gradient: &mut [f32]) -> f32 {
        assert_eq!(gradient.len(), self.parameters.len(), "one gradient a parameter");
        let activations = self.forward(batch.inputs.view());
        let samples = batch.labels.len() as f32;
        let mut loss = 0.0;
        // Softmax and cross entropy together: probability, less 1 at the right class.
        let mut delta = activations.last().map(softmax).unwrap_or_default();
        for (mut row, &label) in delta.outer_iter_mut().zip(&batch.labels) {
            loss -= row[label].max(f32::MIN_POSITIVE).ln();
            row[label] -= 1.0;
        }
        delta /= samples;

        let layers: Vec<_> = self.shape.layers().collect();
        let mut end = self.parameters.len();
        for (depth, &(from, to)) in layers.iter().enumerate().rev() {
            let start = end - (from + 1) * to;
            let input = if depth == 0 { batch.inputs.view() } else { activations[depth - 1].view() };
            let (mut weights, mut biases) = split_mut(&mut gradient[start..end], from, to);
            ndarray::linalg::general_mat_mul(1.0, &input.t(), &delta, 0.0, &mut weights);
            biases.assign(&delta.sum_axis(Axis(0)));
            if depth > 0 {
                let (weights, _) = split(&self.parameters[start..end], from, to);
                delta = delta.dot(&weights.t());
                Zip::from(&mut delta).and(input).for_each(|delta, &active| {
                    if active <= 0.0 {
                        *delta = 0.0;
                    }
                });
            }
            end = start;
        }
        loss / samples
    }

    /// Share of the samples that the network puts into the right class, 0..=1.
    ///
    /// # Panics
    /// If the data set does not fit the shape.
    pub fn accuracy(&self, data: &Dataset) -> f64 {
        let indices: Vec<u32> = (0..data.len() as u32).collect();
        let right: usize = indices
            .chunks(EVALUATION_BATCH)
            .map(|chunk| {
                let batch = data.batch(chunk);
                let scores = self.forward(batch.inputs.view()).pop().unwrap_or_default();
                scores.outer_iter().zip(&batch.labels).filter(|(row, label)| most(row) == Some(**label)).count()
            })
            .sum();
        right as f64 / data.len() as f64
    }

    /// What comes out of each layer; of the last one before softmax.
    fn forward(&self, inputs: ArrayView2<f32>) -> Vec<Array2<f32>> {
        let depth = self.shape.hidden.len();
        let mut activations: Vec<Array2<f32>> = Vec::with_capacity(depth + 1);
        let mut start = 0;
        for (layer, (from, to)) in self.shape.layers().enumerate() {
            let end = start + (from + 1) * to;
            let (weights, biases) = split(&self.parameters[start..end], from, to);
            let input = activations.last().map_or(inputs, |below| below.view());
            let mut output = input.dot(&weights);
            output += &biases;
            if layer < depth {
                output.mapv_inplace(|value| value.max(0.0));
            }
            activations.push(output);
            start = end;
        }
        activations
    }
}

/// Weights and biases of one layer.
fn split(layer: &[f32], from: usize, to: usize) -> (ArrayView2<'_, f32>, ArrayView1<'_, f32>) {
    let (weights, biases) = layer.split_at(from * to);
    (ArrayView2::from_shape((from, to), weights).expect("from * to of them"), ArrayView1::from(biases))
}

fn split_mut(layer: &mut [f32], from: usize, to: usize) -> (ArrayViewMut2<'_, f32>, ArrayViewMut1<'_, f32>) {
    let (weights, biases) = layer.split_at_mut(from * to);
    (ArrayViewMut2::from_shape((from, to), weights).expect("from * to of them"), ArrayViewMut1::from(biases))
}

/// Of each row. The largest score is taken off first, so that nothing overflows.
fn softmax(scores: &Array2<f32>) -> Array2<f32> {
    let mut probabilities = scores.clone();
    for mut row in probabilities.outer_iter_mut() {
        let largest = row.fold(f32::NEG_INFINITY, |largest, &score| largest.max(score));
        row.mapv_inplace(|score| (score - largest).exp());
        let sum = row.sum();
        row /= sum;
    }
    probabilities
}

fn most(row: &ArrayView1<f32>) -> Option<usize> {
    row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(class, _)| class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::Sampler;
    use crate::training::dataset::tests::blobs;

    fn shape(inputs: usize, hidden: &[usize], classes: usize) -> Shape {
        Shape { inputs, hidden: hidden.to_vec(), classes }
    }

    #[test]
    fn the_networks_of_the_demo_and_of_serene_have_their_known_sizes() {
        assert_eq!(shape(784, &[32], 10).parameters(), 25_450);
        assert_eq!(shape(784, &[100], 10).parameters(), 79_510);
        assert_eq!(shape(64, &[], 10).parameters(), 650);
    }

    #[test]
    fn equal_seeds_give_equal_networks_and_others_do_not() {
        let new = |seed| Mlp::new(shape(4, &[3], 2), seed);
        assert_eq!(new(1).parameters(), new(1).parameters());
        assert_ne!(new(1).parameters(), new(2).parameters());
        assert!(new(1).parameters().iter().all(|p| p.abs() <= (6.0f32 / 3.0).sqrt()));
    }

    #[test]
    fn the_gradient_is_that_of_finite_differences() {
        let data = blobs(40, 3);
        for hidden in [&[][..], &[5], &[6, 4]] {
            let mut mlp = Mlp::new(shape(data.features(), hidden, 3), 7);
            // Off the kink: a unit whose inputs are all 0 sits on it as long as its bias is 0.
            mlp.parameters_mut().iter_mut().for_each(|parameter| *parameter += 0.05);
            let batch = data.batch(&[0, 1, 2, 3, 4, 5, 6, 7]);
            let mut gradient = vec![0.0; mlp.parameters().len()];
            let mut scratch = gradient.clone();
            mlp.gradient(&batch, &mut gradient);
            for (index, computed) in gradient.iter().enumerate() {
                let mut loss_at = |step: f32| {
                    let before = mlp.parameters()[index];
                    mlp.parameters_mut()[index] = before + step;
                    let loss = mlp.gradient(&batch, &mut scratch);
                    mlp.parameters_mut()[index] = before;
                    loss
                };
                let difference = (loss_at(5e-4) - loss_at(-5e-4)) / 1e-3;
                let error = (computed - difference).abs();
                assert!(error < 2e-3, "parameter {index} of {hidden:?}: {computed} and {difference}");
            }
        }
    }

    #[test]
    fn a_generated_data_set_is_learned() {
        let (train, test) = (blobs(300, 1), blobs(150, 2));
        let mut mlp = Mlp::new(shape(train.features(), &[16], 3), 1);
        let mut gradient = vec![0.0; mlp.parameters().len()];
        let mut sampler = Sampler::new(train.len(), 1, 0, 1);
        assert!(mlp.accuracy(&test) < 0.8, "nothing is left to learn");
        for _ in 0..200 {
            let batch = train.batch(sampler.next(32));
            mlp.gradient(&batch, &mut gradient);
            mlp.parameters_mut().iter_mut().zip(&gradient).for_each(|(p, g)| *p -= 0.2 * g);
        }
        assert!(mlp.accuracy(&test) > 0.95, "accuracy {}", mlp.accuracy(&test));
    }
}
