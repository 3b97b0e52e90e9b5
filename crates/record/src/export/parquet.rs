//! Export of tables as Apache Parquet without Arrow: text as UTF-8 byte arrays, numbers as optional doubles.

use std::io::Write;
use std::sync::Arc;

use ::parquet::basic::{LogicalType, Repetition, Type as Physical};
use ::parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use ::parquet::errors::Result;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::{Type, TypePtr};

use super::{Column, Table};

/// Writes a table as a Parquet file with one row group. Returns an error only if writing fails.
pub fn write(table: &Table, out: impl Write + Send) -> Result<()> {
    let properties = Arc::new(WriterProperties::builder().build());
    let mut file = SerializedFileWriter::new(out, schema(table)?, properties)?;
    let mut group = file.next_row_group()?;
    for (_, column) in &table.columns {
        let mut writer = group.next_column()?.expect("the schema has a column for each");
        match column {
            Column::Text(values) => {
                let values: Vec<ByteArray> = values.iter().map(|v| v.as_str().into()).collect();
                writer.typed::<ByteArrayType>().write_batch(&values, None, None)?;
            }
            Column::Number(values) => {
                // A known number has definition level 1; an unknown one has level 0 and no value.
                let levels: Vec<i16> = values.iter().map(|v| i16::from(v.is_some())).collect();
                let known: Vec<f64> = values.iter().flatten().copied().collect();
                writer.typed::<DoubleType>().write_batch(&known, Some(&levels), None)?;
            }
        }
        writer.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(())
}

fn schema(table: &Table) -> Result<TypePtr> {
    let field = |(name, column): &(String, Column)| {
        let builder = match column {
            Column::Text(_) => Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
                .with_logical_type(Some(LogicalType::String))
                .with_repetition(Repetition::REQUIRED),
            Column::Number(_) => {
                Type::primitive_type_builder(name, Physical::DOUBLE).with_repetition(Repetition::OPTIONAL)
            }
        };
        builder.build().map(Arc::new)
    };
    let fields = table.columns.iter().map(field).collect::<Result<Vec<_>>>()?;
    Type::group_type_builder("trunkline").with_fields(fields).build().map(Arc::new)
}

#[cfg(test)]
mod tests {
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::record::Field;

    use super::*;
    use crate::export::{connections, series, tests::record};

    fn read_back(table: &Table) -> Vec<Vec<(String, Field)>> {
        let file = tempfile::tempfile().unwrap();
        write(table, &file).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let rows = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().into_columns());
        rows.collect()
    }

    fn expected(table: &Table) -> Vec<Vec<(String, Field)>> {
        let field = |column: &Column, row: usize| match column {
            Column::Text(values) => Field::Str(values[row].clone()),
            Column::Number(values) => values[row].map_or(Field::Null, Field::Double),
        };
        let row = |row| table.columns.iter().map(|(name, c)| (name.clone(), field(c, row))).collect();
        (0..table.rows()).map(row).collect()
    }

    #[test]
    fn tables_read_back() {
        for table in [connections(&[record()]), series(&[record()]), series(&[])] {
            assert_eq!(read_back(&table), expected(&table));
        }
        assert!(read_back(&connections(&[record()])).iter().flatten().any(|(_, f)| *f == Field::Null));
    }
}
