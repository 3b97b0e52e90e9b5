//! Export as Apache Parquet, one row group at a time.
//!
//! Columns have the names of the CSV export. Timestamps are in nanoseconds (UTC), numbers are doubles. A reading is
//! in one of the columns `counter` (unsigned), `gauge` (signed) and `real`, depending on its kind.

use std::io::Write;
use std::sync::Arc;

use ::parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use ::parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use ::parquet::errors::Result;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::{Type, TypePtr};

use super::{ExportRow, RowData, event_names, mean};
use crate::counter::{RawValue, Timestamp, ValueKind};

/// Rows per row group.
const GROUP_ROWS: usize = 50_000;

/// Buffered values of one column.
enum ColumnBuffer {
    Text(Vec<ByteArray>),
    /// Timestamps, counters or gauges, depending on the schema.
    Whole(Vec<Option<i64>>),
    Number(Vec<Option<f64>>),
}

#[derive(Clone, Copy)]
enum ColumnType {
    Text,
    Time,
    Unsigned,
    Signed,
    Number,
}

use ColumnType::{Number, Signed, Text, Time, Unsigned};

const COMMON: [(&str, ColumnType); 5] =
    [("device", Text), ("table", Text), ("series", Text), ("kind", Text), ("unit", Text)];

const READING: [(&str, ColumnType); 10] = [
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

const BUCKET: [(&str, ColumnType); 10] = [
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

/// Writes rows to a Parquet file.
pub struct ParquetWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    columns: Vec<ColumnBuffer>,
    rows: usize,
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Creates a file of readings or buckets.
    pub fn new(out: W, buckets: bool) -> Result<ParquetWriter<W>> {
        let types: Vec<(&str, ColumnType)> =
            COMMON.into_iter().chain(if buckets { BUCKET } else { READING }).collect();
        let properties = WriterProperties::builder().set_compression(Compression::UNCOMPRESSED).build();
        let file = SerializedFileWriter::new(out, schema(&types)?, Arc::new(properties))?;
        let empty = |(_, column_type): &(&str, ColumnType)| match column_type {
            Text => ColumnBuffer::Text(Vec::new()),
            Time | Unsigned | Signed => ColumnBuffer::Whole(Vec::new()),
            Number => ColumnBuffer::Number(Vec::new()),
        };
        Ok(ParquetWriter { file, columns: types.iter().map(empty).collect(), rows: 0 })
    }

    /// Buffers a row and writes a row group when it is full.
    pub fn write_row(&mut self, line: &ExportRow<'_>) -> Result<()> {
        let ExportRow { table, series, data } = line;
        let (kind, is_real) = (series.column.kind, series.column.kind == ValueKind::Real);
        let mut columns = self.columns.iter_mut();
        let mut put = |value: Value| match (columns.next(), value) {
            (Some(ColumnBuffer::Text(all)), Value::Text(text)) => all.push(text.into_bytes().into()),
            (Some(ColumnBuffer::Whole(all)), Value::Whole(whole)) => all.push(whole),
            (Some(ColumnBuffer::Number(all)), Value::Number(number)) => all.push(number),
            _ => unreachable!("a row has the columns of its schema"),
        };
        let text = |text: &str| Value::Text(text.into());
        [text(&table.device), text(&table.name), text(&series.name), text(kind.name()), text(&series.unit)]
            .into_iter()
            .for_each(&mut put);
        let time = |timestamp: Timestamp| Value::Whole(Some(timestamp.0));
        match data {
            RowData::Reading(point) => {
                let growth = point.update.growth;
                let raw =
                    |is: bool| Value::Whole(point.value.filter(|_| is).map(|RawValue(bits)| bits as i64));
                [
                    time(point.row.requested_at),
                    Value::Whole(point.row.answered_at.map(|m| m.0)),
                    Value::Whole(point.row.uptime.map(i64::from)),
                    raw(kind.is_counter()),
                    raw(kind == ValueKind::Gauge),
                    Value::Number(point.value.filter(|_| is_real).map(|raw| raw.to_f64(kind))),
                    Value::Whole(growth.map(|g| g.amount as i64)),
                    Value::Number(growth.map(|g| g.min_rate())),
                    Value::Number(growth.map(|g| g.max_rate())),
                    Value::Text(event_names(point.update.events)),
                ]
                .into_iter()
                .for_each(&mut put);
            }
            RowData::Bucket(from, to, summary) => {
                let sum = if is_real { summary.real_sum } else { summary.sum as f64 };
                [
                    time(*from),
                    time(*to),
                    Value::Number(Some(sum)),
                    Value::Number(mean(summary, kind)),
                    Value::Whole(Some(summary.samples as i64)),
                    Value::Number(Some(summary.covered.as_secs_f64())),
                    Value::Number(summary.range.map(|r| r.low)),
                    Value::Number(summary.range.map(|r| r.high)),
                    Value::Number(summary.range.map(|r| r.upper_bound)),
                    Value::Text(event_names(summary.events)),
                ]
                .into_iter()
                .for_each(&mut put);
            }
        }
        self.rows += 1;
        if self.rows < GROUP_ROWS { Ok(()) } else { self.write_group() }
    }

    /// Writes the buffered rows as a row group.
    fn write_group(&mut self) -> Result<()> {
        let mut group = self.file.next_row_group()?;
        for column in &mut self.columns {
            let mut writer = group.next_column()?.expect("the schema has a column for each");
            match column {
                ColumnBuffer::Text(values) => {
                    writer.typed::<ByteArrayType>().write_batch(values, None, None)?;
                    values.clear();
                }
                ColumnBuffer::Whole(values) => {
                    let known: Vec<i64> = values.iter().flatten().copied().collect();
                    writer.typed::<Int64Type>().write_batch(&known, Some(&levels(values)), None)?;
                    values.clear();
                }
                ColumnBuffer::Number(values) => {
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

    /// Writes the remaining rows and the footer.
    pub fn finish(mut self) -> Result<()> {
        if self.rows > 0 {
            self.write_group()?;
        }
        self.file.close().map(drop)
    }
}

/// A field of a row.
enum Value {
    Text(String),
    Whole(Option<i64>),
    Number(Option<f64>),
}

/// Returns the definition levels: 1 for a present value, 0 for a missing one.
fn levels<T>(values: &[Option<T>]) -> Vec<i16> {
    values.iter().map(|value| i16::from(value.is_some())).collect()
}

fn schema(columns: &[(&str, ColumnType)]) -> Result<TypePtr> {
    let field = |(name, column_type): &(&str, ColumnType)| {
        let of = |physical, logical| {
            Type::primitive_type_builder(name, physical).with_logical_type(logical).with_repetition(
                match column_type {
                    Text => Repetition::REQUIRED,
                    _ => Repetition::OPTIONAL,
                },
            )
        };
        let builder = match column_type {
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

#[cfg(test)]
mod tests {
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::record::{Field, Row};

    use super::*;
    use crate::archive::export::tests::{archive, query};

    fn read_back(pattern: &str, every: Option<u64>) -> Vec<Row> {
        let (_dir, reader) = archive(600);
        let file = tempfile::tempfile().unwrap();
        let mut writer = ParquetWriter::new(file.try_clone().unwrap(), every.is_some()).unwrap();
        reader
            .export(&query(pattern, every), |line| writer.write_row(line).map_err(std::io::Error::other))
            .unwrap();
        writer.finish().unwrap();
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
