//! Data sets as they come: Fashion-MNIST of Debian, scikit-learn's digits, or a directory of MNIST's format.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};

use crate::training::Dataset;

/// Where Debian's package puts it.
const FASHION_MNIST: &str = "/usr/share/datasets/fashion-mnist";
const PACKAGE: &str = "dataset-fashion-mnist";
/// In the command itself: small enough, and a quick test needs no package. See tests/data/README.md for its origin.
const DIGITS: &[u8] = include_bytes!("../../../tests/data/digits.csv.gz");
/// Of digits' samples; the last ones are of writers that the first ones do not know.
const DIGITS_TEST: usize = 297;
const CLASSES: usize = 10;
/// MNIST has 47 MB. A file that unpacks to more is none of its kind.
const MOST_BYTES: u64 = 1 << 30;

/// Which data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// 60,000 and 10,000 images of clothes, 28x28.
    FashionMnist,
    /// 1,500 and 297 images of digits, 8x8.
    Digits,
    /// Four files of MNIST's names and format, gzipped or not.
    Directory(PathBuf),
}

impl FromStr for Source {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "fashion-mnist" => Source::FashionMnist,
            "digits" => Source::Digits,
            directory => Source::Directory(directory.into()),
        })
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::FashionMnist => f.write_str("fashion-mnist"),
            Source::Digits => f.write_str("digits"),
            Source::Directory(path) => path.display().fmt(f),
        }
    }
}

/// What is learned, and what shows how well.
pub struct Data {
    /// To draw minibatches from.
    pub train: Dataset,
    /// Never trained on.
    pub test: Dataset,
}

impl Source {
    /// Reads it.
    ///
    /// # Errors
    /// What is missing, and how to get it; or which file is wrong, and in what.
    pub fn load(&self) -> Result<Data> {
        match self {
            Source::Digits => {
                let mut train = digits(DIGITS).context("digits.csv.gz")?;
                let test = train.split_off(DIGITS_TEST);
                Ok(Data { train, test })
            }
            Source::Directory(directory) => mnist(directory),
            Source::FashionMnist if Path::new(FASHION_MNIST).is_dir() => mnist(Path::new(FASHION_MNIST)),
            Source::FashionMnist => bail!(
                "Fashion-MNIST is not in {FASHION_MNIST}. Debian and Ubuntu: apt-get install {PACKAGE}; elsewhere: \
                 --data DIR with its four files, or --data digits"
            ),
        }
    }
}

fn mnist(directory: &Path) -> Result<Data> {
    let half = |name: &str| {
        let (images, labels) = (format!("{name}-images-idx3-ubyte"), format!("{name}-labels-idx1-ubyte"));
        half(&read(directory, &images)?, &read(directory, &labels)?)
            .with_context(|| format!("{images} and {labels} in {}", directory.display()))
    };
    let (train, test) = (half("train")?, half("t10k")?);
    ensure!(
        train.features() == test.features(),
        "images to train with have {} pixels and those to test with {}",
        train.features(),
        test.features()
    );
    Ok(Data { train, test })
}

/// NAME.gz of the directory, or NAME.
fn read(directory: &Path, name: &str) -> Result<Vec<u8>> {
    let (packed, plain) = (directory.join(format!("{name}.gz")), directory.join(name));
    match File::open(&packed) {
        Ok(file) => read_all(GzDecoder::new(file)).with_context(|| format!("cannot unpack {}", packed.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => File::open(&plain)
            .map_err(anyhow::Error::from)
            .and_then(read_all)
            .with_context(|| format!("cannot read {}, nor as {name}.gz", plain.display())),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", packed.display())),
    }
}

fn read_all(reader: impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= MOST_BYTES, "it has more than {MOST_BYTES} bytes");
    Ok(bytes)
}

fn half(images: &[u8], labels: &[u8]) -> Result<Dataset> {
    let (sizes, pixels) = idx::<3>(images).context("images")?;
    let ([count], labels) = idx::<1>(labels).context("labels")?;
    ensure!(count == sizes[0], "{} images and {count} labels", sizes[0]);
    Ok(Dataset::new(sizes[1] * sizes[2], CLASSES, u8::MAX, pixels.to_vec(), labels.to_vec())?)
}

/// MNIST's format: two zero bytes, 8 for bytes, the number of dimensions, their sizes as big-endian u32, the values.
fn idx<const DIMENSIONS: usize>(bytes: &[u8]) -> Result<([usize; DIMENSIONS], &[u8])> {
    let Some((magic, mut rest)) = bytes.split_first_chunk::<4>() else {
        bail!("{} bytes are no IDX file", bytes.len())
    };
    ensure!(
        *magic == [0, 0, 8, DIMENSIONS as u8],
        "begins with {magic:02x?}, and an IDX file of bytes in {DIMENSIONS} dimensions with [00, 00, 08, {DIMENSIONS:02x}]"
    );
    let mut sizes = [0; DIMENSIONS];
    for size in &mut sizes {
        let Some((field, after)) = rest.split_first_chunk() else { bail!("ends within its header") };
        *size = u32::from_be_bytes(*field) as usize;
        rest = after;
    }
    let wanted = sizes.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
    ensure!(wanted == Some(rest.len()), "its header says {sizes:?}, and {} values follow", rest.len());
    Ok((sizes, rest))
}

/// A line an image: 64 values of 0 to 16, and its digit.
fn digits(packed: &[u8]) -> Result<Dataset> {
    const PIXELS: usize = 64;
    let bytes = read_all(GzDecoder::new(packed))?;
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for (number, line) in std::str::from_utf8(&bytes)?.lines().enumerate() {
        let line_of = || format!("line {}", number + 1);
        let mut fields = line.split(',').map(str::parse::<u8>).collect::<Result<Vec<_>, _>>().with_context(line_of)?;
        ensure!(fields.len() == PIXELS + 1, "{}: {} values instead of {}", line_of(), fields.len(), PIXELS + 1);
        labels.extend(fields.pop());
        values.append(&mut fields);
    }
    Ok(Dataset::new(PIXELS, CLASSES, 16, values, labels)?)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn images(count: u32) -> Vec<u8> {
        let mut bytes = vec![0, 0, 8, 3];
        [count, 2, 2].iter().for_each(|size| bytes.extend(size.to_be_bytes()));
        bytes.extend((0..count * 4).map(|value| value as u8));
        bytes
    }

    fn labels(count: u32) -> Vec<u8> {
        let mut bytes = vec![0, 0, 8, 1];
        bytes.extend(count.to_be_bytes());
        bytes.extend((0..count).map(|label| label as u8 % 10));
        bytes
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    #[test]
    fn digits_are_in_the_command_and_have_their_known_size() {
        let data = Source::Digits.load().expect("it is built in");
        assert_eq!((data.train.len(), data.test.len()), (1500, 297));
        assert_eq!((data.train.features(), data.train.classes()), (64, 10));
        let first = data.train.batch(&[0]);
        assert_eq!(first.inputs.iter().take(4).copied().collect::<Vec<_>>(), [0.0, 0.0, 0.3125, 0.8125]);
        assert_eq!(first.labels, [0]);
    }

    #[test]
    fn a_directory_may_hold_plain_and_gzipped_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, bytes: &[u8]| std::fs::write(dir.path().join(name), bytes).expect("written");
        write("train-images-idx3-ubyte.gz", &gzip(&images(5)));
        write("train-labels-idx1-ubyte", &labels(5));
        write("t10k-images-idx3-ubyte", &images(2));
        let source: Source = dir.path().display().to_string().parse().expect("any text is a directory");
        let missing = format!("{:#}", source.load().err().expect("one file is missing"));
        assert!(missing.contains("t10k-labels-idx1-ubyte, nor as"), "{missing}");
        write("t10k-labels-idx1-ubyte.gz", &gzip(&labels(2)));
        let data = source.load().expect("complete");
        assert_eq!((data.train.len(), data.test.len(), data.train.features()), (5, 2, 4));
        write("t10k-labels-idx1-ubyte.gz", &gzip(&labels(2))[..20]);
        let cut = format!("{:#}", source.load().err().expect("the file is cut"));
        assert!(cut.contains("cannot unpack"), "{cut}");
    }

    #[test]
    fn a_malformed_file_is_told_by_what_is_wrong_and_never_panics() {
        let error = |images: &[u8], labels: &[u8]| format!("{:#}", half(images, labels).expect_err("it is wrong"));
        assert!(error(&images(3), &labels(2)).contains("3 images and 2 labels"));
        assert!(error(&labels(3), &labels(3)).contains("begins with [00, 00, 08, 01]"));
        assert!(error(&images(3)[..9], &labels(3)).contains("ends within its header"));
        assert!(error(&images(3)[..26], &labels(3)).contains("says [3, 2, 2], and 10 values follow"));
        assert!(error(&[], &labels(3)).contains("0 bytes are no IDX file"));
        let mut huge = images(3);
        huge[4..16].fill(0xff);
        assert!(error(&huge, &labels(3)).contains("values follow"));
        let mut wrong = labels(3);
        wrong[10] = 10;
        assert!(error(&images(3), &wrong).contains("sample 2 has label 10"));
        for cut in 0..images(3).len() {
            assert!(half(&images(3)[..cut], &labels(3)).is_err());
        }
    }

    #[test]
    fn a_wrong_line_of_digits_is_told_by_its_number() {
        let error = |text: &str| format!("{:#}", digits(&gzip(text.as_bytes())).expect_err("it is wrong"));
        let line = vec!["1"; 65].join(",");
        assert!(error(&format!("{line}\n1,2\n")).contains("line 2: 2 values instead of 65"));
        assert!(error(&format!("{line}\n{}", line.replacen('1', "-1", 1))).contains("line 2"));
        assert!(error("").contains("no samples"));
        assert!(digits(b"not gzip").is_err());
    }
}
