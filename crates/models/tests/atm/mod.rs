mod agree;
mod common;
mod link;
mod plain;
mod short;
