//! Rows and columns for people.

use std::fmt;

use serde_json::Value;

/// A table of text: the first row is its head, numbers stand to the right.
#[derive(Debug, Default)]
pub struct Table(Vec<Vec<String>>);

impl Table {
    /// One row for each JSON object of an array; a column is its head and the value's place in the object (RFC 6901).
    pub fn of_objects(objects: &Value, columns: &[(&str, &str)]) -> Table {
        let head = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
        let row = |object: &Value| columns.iter().map(|(_, place)| cell(object.pointer(place))).collect();
        Table(std::iter::once(head).chain(objects.as_array().into_iter().flatten().map(row)).collect())
    }
}

fn cell(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => if *flag { "yes" } else { "no" }.into(),
        Some(Value::Number(number)) if number.is_f64() => format!("{:.1}", number.as_f64().unwrap_or_default()),
        Some(Value::Null) | None => "-".into(),
        Some(other) => other.to_string(),
    }
}

/// What is left empty stands with the numbers around it.
fn is_number(cell: &str) -> bool {
    cell.is_empty() || cell.parse::<f64>().is_ok()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.0.first().map_or(0, Vec::len);
        let cells = |column: usize| self.0.iter().filter_map(move |row| row.get(column));
        let widths: Vec<usize> =
            (0..columns).map(|column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0)).collect();
        let numbers: Vec<bool> = (0..columns).map(|column| cells(column).skip(1).all(|cell| is_number(cell))).collect();
        for (number, row) in self.0.iter().enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                line += &if numbers[column] { format!("{cell:>width$}  ") } else { format!("{cell:<width$}  ") };
            }
            let newline = if number == 0 { "" } else { "\n" };
            write!(f, "{newline}{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_there_is_a_dash_and_a_fraction_has_one_digit() {
        let objects = json!([{ "ms": 1623.224473, "error": null }]);
        let table = Table::of_objects(&objects, &[("ms", "/ms"), ("error", "/error")]);
        assert_eq!(table.to_string(), "    ms  error\n1623.2  -");
    }

    #[test]
    fn columns_are_aligned_and_numbers_stand_to_the_right() {
        let objects =
            json!([{ "job": 1, "b": "first", "m": { "red": 5 } }, { "job": 20, "b": "x", "m": { "red": 12345 } }]);
        let table = Table::of_objects(&objects, &[("job", "/job"), ("name", "/b"), ("red", "/m/red"), ("?", "/none")]);
        assert_eq!(table.to_string(), "job  name     red  ?\n  1  first      5  -\n 20  x      12345  -");
        assert_eq!(Table::of_objects(&json!([]), &[("job", "/job")]).to_string(), "job");
        let sparse = Table::of_objects(&json!([{ "red": 12 }, { "red": "" }, { "red": 5 }]), &[("RED", "/red")]);
        assert_eq!(sparse.to_string(), "RED\n 12\n\n  5");
    }
}
