//! Rows as Apache Parquet, a row group at a time.
//!
//! Columns are named as in CSV and typed: texts, moments as timestamps of nanoseconds (UTC), numbers as doubles. A reading
//! stands in one of `counter` (unsigned), `gauge` (signed) and `real`, by its kind.

use std::io::Write;
use std::sync::Arc;

use ::parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use ::parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::{Type, TypePtr};

use super::{Cell, Line, mean, names};
use crate::counter::{Kind, Moment, Raw};

/// Rows that wait to be a row group.
const GROUP: usize = 50_000;

/// One column of the group that is made.
enum Waiting {
    Text(Vec<ByteArray>),
    /// Of nanoseconds, or of a counter or gauge: see the schema.
    Whole(Vec<Option<i64>>),
    Number(Vec<Option<f64>>),
}

/// What a column is.
#[derive(Clone, Copy)]
enum Sort {
    Text,
    Time,
    Unsigned,
    Signed,
    Number,
}

use Sort::{Number, Signed, Text, Time, Unsigned};

const COMMON: [(&str, Sort); 5] =
    [("device", Text), ("table", Text), ("series", Text), ("kind", Text), ("unit", Text)];

const READING: [(&str, Sort); 10] = [
    ("asked", Time),
    ("answered", Time),
    ("uptime", Signed),
    ("counter", Unsigned),
    ("gauge", Signed),
    ("real", Number),
    ("grew", Unsigned),
    ("least_per_s", Number),
    ("most_per_s", Number),
    ("events", Text),
];

const BUCKET: [(&str, Sort); 10] = [
    ("time", Time),
    ("end", Time),
    ("sum", Number),
    ("mean", Number),
    ("samples", Signed),
    ("covered_s", Number),
    ("low", Number),
    ("high", Number),
    ("most", Number),
    ("events", Text),
];

/// Writes rows as one Parquet file.
pub struct Sheet<W: Write + Send> {
    file: SerializedFileWriter<W>,
    columns: Vec<Waiting>,
    rows: usize,
}

impl<W: Write + Send> Sheet<W> {
    /// Begins a file of readings or buckets.
    pub fn new(out: W, buckets: bool) -> Result<Sheet<W>> {
        let sorts: Vec<(&str, Sort)> =
            COMMON.into_iter().chain(if buckets { BUCKET } else { READING }).collect();
        let properties = WriterProperties::builder().set_compression(Compression::UNCOMPRESSED).build();
        let file = SerializedFileWriter::new(out, schema(&sorts)?, Arc::new(properties))?;
        let empty = |(_, sort): &(&str, Sort)| match sort {
            Text => Waiting::Text(Vec::new()),
            Time | Unsigned | Signed => Waiting::Whole(Vec::new()),
            Number => Waiting::Number(Vec::new()),
        };
        Ok(Sheet { file, columns: sorts.iter().map(empty).collect(), rows: 0 })
    }

    /// Takes a row.
    pub fn row(&mut self, line: &Line<'_>) -> Result<()> {
        let Line { table, series, said } = line;
        let kind = series.column.kind;
        let mut columns = self.columns.iter_mut();
        let mut put = |value: Value| match (columns.next(), value) {
            (Some(Waiting::Text(all)), Value::Text(text)) => all.push(text.into_bytes().into()),
            (Some(Waiting::Whole(all)), Value::Whole(whole)) => all.push(whole),
            (Some(Waiting::Number(all)), Value::Number(number)) => all.push(number),
            _ => unreachable!("a row has the columns of its schema"),
        };
        let text = |text: &str| Value::Text(text.into());
        [text(&table.device), text(&table.name), text(&series.name), text(kind.name()), text(&series.unit)]
            .into_iter()
            .for_each(&mut put);
        let time = |moment: Moment| Value::Whole(Some(moment.0));
        match said {
            Cell::Reading(point) => {
                let growth = point.step.growth;
                let raw = |is: bool| Value::Whole(point.value.filter(|_| is).map(|Raw(bits)| bits as i64));
                [
                    time(point.row.asked),
                    Value::Whole(point.row.answered.map(|m| m.0)),
                    Value::Whole(point.row.uptime.map(i64::from)),
                    raw(kind.counts()),
                    raw(kind == Kind::Gauge),
                    Value::Number(point.value.filter(|_| kind == Kind::Real).map(|raw| raw.number(kind))),
                    Value::Whole(growth.map(|g| g.by as i64)),
                    Value::Number(growth.map(|g| g.least())),
                    Value::Number(growth.map(|g| g.most())),
                    Value::Text(names(point.step.events)),
                ]
                .into_iter()
                .for_each(&mut put);
            }
            Cell::Bucket(from, to, summary) => {
                let sum = if kind == Kind::Real { summary.real } else { summary.sum as f64 };
                [
                    time(*from),
                    time(*to),
                    Value::Number(Some(sum)),
                    Value::Number(mean(summary, kind)),
                    Value::Whole(Some(summary.samples as i64)),
                    Value::Number(Some(summary.covered.as_secs_f64())),
                    Value::Number(summary.range.map(|r| r.low)),
                    Value::Number(summary.range.map(|r| r.high)),
                    Value::Number(summary.range.map(|r| r.most)),
                    Value::Text(names(summary.events)),
                ]
                .into_iter()
                .for_each(&mut put);
            }
        }
        self.rows += 1;
        if self.rows < GROUP { Ok(()) } else { self.group() }
    }

    /// Writes the rows that wait.
    fn group(&mut self) -> Result<()> {
        let mut group = self.file.next_row_group()?;
        for column in &mut self.columns {
            let mut writer = group.next_column()?.expect("the schema has a column for each");
            match column {
                Waiting::Text(values) => {
                    writer.typed::<ByteArrayType>().write_batch(values, None, None)?;
                    values.clear();
                }
                Waiting::Whole(values) => {
                    let known: Vec<i64> = values.iter().flatten().copied().collect();
                    writer.typed::<Int64Type>().write_batch(&known, Some(&levels(values)), None)?;
                    values.clear();
                }
                Waiting::Number(values) => {
                    let known: Vec<f64> = values.iter().flatten().copied().collect();
                    writer.typed::<DoubleType>().write_batch(&known, Some(&levels(values)), None)?;
                    values.clear();
                }
            }
            writer.close()?;
        }
        self.rows = 0;
        group.close().map(drop)
    }

    /// Ends the file.
    pub fn finish(mut self) -> Result<()> {
        if self.rows > 0 {
            self.group()?;
        }
        self.file.close().map(drop)
    }
}

/// A field.
enum Value {
    Text(String),
    Whole(Option<i64>),
    Number(Option<f64>),
}

/// Definition levels: 1 for a value that is there.
fn levels<T>(values: &[Option<T>]) -> Vec<i16> {
    values.iter().map(|value| i16::from(value.is_some())).collect()
}

fn schema(columns: &[(&str, Sort)]) -> Result<TypePtr> {
    let field = |(name, sort): &(&str, Sort)| {
        let of = |physical, logical| {
            Type::primitive_type_builder(name, physical).with_logical_type(logical).with_repetition(
                match sort {
                    Text => Repetition::REQUIRED,
                    _ => Repetition::OPTIONAL,
                },
            )
        };
        let builder = match sort {
            Text => of(Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Time => of(Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::NANOS))),
            Unsigned => of(Physical::INT64, Some(LogicalType::integer(64, false))),
            Signed => of(Physical::INT64, None),
            Number => of(Physical::DOUBLE, None),
        };
        builder.build().map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<Vec<_>>>()?;
    Type::group_type_builder("trunkline").with_fields(fields).build().map(Arc::new)
}

/// As an error of writing.
pub fn io(error: ParquetError) -> std::io::Error {
    std::io::Error::other(error.to_string())
}

#[cfg(test)]
mod tests {
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::record::{Field, Row};

    use super::*;
    use crate::archive::flat::tests::{archive, wanted};

    fn read_back(pattern: &str, every: Option<u64>) -> Vec<Row> {
        let (_dir, reader) = archive(600);
        let file = tempfile::tempfile().unwrap();
        let mut sheet = Sheet::new(file.try_clone().unwrap(), every.is_some()).unwrap();
        reader.flat(&wanted(pattern, every), |line| sheet.row(line).map_err(io)).unwrap();
        sheet.finish().unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        reader.get_row_iter(None).unwrap().map(|row| row.unwrap()).collect()
    }

    fn field(row: &Row, name: &str) -> Field {
        row.get_column_iter().find(|(n, _)| *n == name).unwrap().1.clone()
    }

    #[test]
    fn readings_and_buckets_read_back() {
        let rows = read_back("*", None);
        assert_eq!(rows.len(), 3 * 600);
        assert_eq!(field(&rows[1], "counter"), Field::ULong(10_007));
        assert_eq!((field(&rows[1], "gauge"), field(&rows[1], "grew")), (Field::Null, Field::ULong(7)));
        assert_eq!(
            (field(&rows[601], "gauge"), field(&rows[1_201], "real")),
            (Field::Long(-1), Field::Double(0.25))
        );
        assert_eq!(
            (field(&rows[9], "answered"), field(&rows[9], "events")),
            (Field::Null, Field::Str("silent".into()))
        );
        let rows = read_back("*:in", Some(60));
        assert_eq!((rows.len(), field(&rows[1], "sum")), (10, Field::Double(420.0)));
    }
}
