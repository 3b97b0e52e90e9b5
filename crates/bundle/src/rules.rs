//! Which message address a PDU has, and which addresses a host wants.
//!
//! A rule names PDUs by exercise, type, family and site, and says where they go: to an address, or to that of the cell of a
//! [`Grid`] in which an Entity State happens. The first rule that matches counts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use trunkline_units::Span;

use crate::wire::dis::Pdu;

/// Most cells of a grid.
pub const MOST_CELLS: usize = 65_536;

/// Numbers that match: any of these ranges; all, if there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers(pub Vec<RangeInclusive<u16>>);

impl Numbers {
    fn has(&self, number: u16) -> bool {
        self.0.is_empty() || self.0.iter().any(|range| range.contains(&number))
    }
}

/// Where PDUs go.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// To this message address.
    Address(u32),
    /// To that of the cell where they happen; what happens outside of it, or has no location, the rule does not match.
    Grid(Grid),
    /// Nowhere.
    Drop,
}

/// PDUs, and where they go.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Exercises.
    pub exercise: Numbers,
    /// Types of PDUs.
    pub kind: Numbers,
    /// Families of types.
    pub family: Numbers,
    /// Sites of the entity that a PDU is about; what has none no rule matches that names some.
    pub site: Numbers,
    /// Whether they have priority, whatever their address: of the wide format.
    pub priority: bool,
    /// How long those with priority may wait in each converter, if that is said.
    pub within: Option<Span>,
    /// Where they go.
    pub target: Target,
}

impl Rule {
    fn address(&self, pdu: Pdu<'_>) -> Option<Option<u32>> {
        let matches = self.exercise.has(pdu.exercise().into())
            && self.kind.has(pdu.kind().into())
            && self.family.has(pdu.family().into())
            && (self.site.0.is_empty() || pdu.site().is_some_and(|site| self.site.has(site)));
        if !matches {
            return None;
        }
        match &self.target {
            Target::Address(address) => Some(Some(*address)),
            Target::Grid(grid) => grid.address(grid.cell(pdu.location()?)?).map(Some),
            Target::Drop => Some(None),
        }
    }
}

/// Cells of equal size, each with a message address: along up to three axes from an origin, the first axis first.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// The address of the first cell.
    pub first: u32,
    /// From the address of a cell to that of the next: 2 where odd addresses are those of priority messages.
    pub step: u16,
    /// Metres from the centre of the earth, in world coordinates (IEEE 1278.1).
    pub origin: [f64; 3],
    /// Directions of length 1.
    pub axes: Vec<[f64; 3]>,
    /// Cells along each axis.
    pub cells: Vec<u32>,
    /// How long a cell is, in metres.
    pub size: f64,
}

/// What a grid cannot be.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum NoGrid {
    /// It has no axis or more than three, or not a number of cells for each.
    #[error("a grid has a number of cells, 1 or more, for each of its axes")]
    Axes,
    /// Cells have no length.
    #[error("a cell of a grid is as long as a number of metres above 0")]
    Size,
    /// Where it begins is no place.
    #[error("the origin of a grid is a place")]
    Origin,
    /// Its cells have no addresses.
    #[error("a grid has up to 65536 cells, whose addresses are up to 4294967295")]
    Addresses,
}

impl Grid {
    /// Along the axes of world coordinates.
    pub fn in_world(
        first: u32,
        step: u16,
        origin: [f64; 3],
        cells: Vec<u32>,
        size: f64,
    ) -> Result<Grid, NoGrid> {
        let axes = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let axes = axes.into_iter().take(cells.len()).collect();
        Grid { first, step, origin, axes, cells, size }.checked()
    }

    /// East and north along the plane that touches the earth (WGS 84) at a latitude and longitude, in degrees.
    pub fn on_earth(
        first: u32,
        step: u16,
        [latitude, longitude]: [f64; 2],
        cells: Vec<u32>,
        size: f64,
    ) -> Result<Grid, NoGrid> {
        /// Half of the longer axis in metres, and the square of the eccentricity.
        const EQUATOR: f64 = 6_378_137.0;
        const SQUARED: f64 = 6.694_379_990_141_317e-3;
        if !(-90.0..=90.0).contains(&latitude) || !(-360.0..=360.0).contains(&longitude) {
            return Err(NoGrid::Origin);
        }
        let radians = |degrees: f64| degrees * core::f64::consts::PI / 180.0;
        let (north, north_cos) = (libm::sin(radians(latitude)), libm::cos(radians(latitude)));
        let (east, east_cos) = (libm::sin(radians(longitude)), libm::cos(radians(longitude)));
        let normal = EQUATOR / libm::sqrt(1.0 - SQUARED * north * north);
        let origin =
            [normal * north_cos * east_cos, normal * north_cos * east, normal * (1.0 - SQUARED) * north];
        let axes = vec![[-east, east_cos, 0.0], [-north * east_cos, -north * east, north_cos]];
        Grid { first, step, origin, axes, cells, size }.checked()
    }

    fn checked(self) -> Result<Grid, NoGrid> {
        let axes = (1..=3).contains(&self.axes.len()) && self.axes.len() == self.cells.len();
        if !axes || self.cells.contains(&0) {
            return Err(NoGrid::Axes);
        }
        if !(self.size > 0.0 && self.size.is_finite()) {
            return Err(NoGrid::Size);
        }
        if !self.origin.iter().all(|metres| metres.is_finite()) {
            return Err(NoGrid::Origin);
        }
        let count = self.cells.iter().try_fold(1u64, |count, cells| count.checked_mul((*cells).into()));
        let last = count.filter(|count| *count <= MOST_CELLS as u64);
        let last = last.map(|count| u64::from(self.first) + (count - 1) * u64::from(self.step));
        match last {
            Some(last) if last <= u32::MAX.into() && self.step > 0 => Ok(self),
            _ => Err(NoGrid::Addresses),
        }
    }

    /// The cell of a location, along each axis; none outside.
    pub fn cell(&self, location: [f64; 3]) -> Option<[u32; 3]> {
        let mut cell = [0; 3];
        for ((axis, cells), at) in self.axes.iter().zip(&self.cells).zip(&mut cell) {
            let metres: f64 = (0..3).map(|n| (location[n] - self.origin[n]) * axis[n]).sum();
            let cells_from = metres / self.size;
            // Also false for what is no number.
            if !(cells_from >= 0.0 && cells_from < f64::from(*cells)) {
                return None;
            }
            // Rounds down; and 0.999… of the last cell stays in it.
            *at = (cells_from as u32).min(cells - 1);
        }
        Some(cell)
    }

    /// The address of a cell; none if there is no such cell.
    pub fn address(&self, cell: [u32; 3]) -> Option<u32> {
        let mut number = 0;
        for (at, cells) in cell.iter().zip(&self.cells).rev() {
            if at >= cells {
                return None;
            }
            number = number * cells + at;
        }
        self.first.checked_add(number * u32::from(self.step))
    }

    /// The address of the last cell.
    fn last(&self) -> u32 {
        self.first + (self.cells.iter().product::<u32>() - 1) * u32::from(self.step)
    }

    /// The addresses of a cell and those up to `reach` cells away from it along every axis.
    pub fn around(&self, cell: [u32; 3], reach: u32) -> BTreeSet<u32> {
        let span = |axis: usize| {
            let last = self.cells.get(axis).map_or(0, |cells| cells - 1);
            cell[axis].saturating_sub(reach)..=cell[axis].saturating_add(reach).min(last)
        };
        let mut found = BTreeSet::new();
        for x in span(0) {
            for y in span(1) {
                for z in span(2) {
                    found.extend(self.address([x, y, z]));
                }
            }
        }
        found
    }
}

/// An entity: site, application, entity.
pub type Entity = [u16; 3];

/// All that a host's interface is told of its simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The first that matches counts.
    pub rules: Vec<Rule>,
    /// Where everything else goes; none: nowhere.
    pub otherwise: Option<u32>,
    /// Addresses that are wanted.
    pub wanted: Vec<RangeInclusive<u32>>,
    /// Entities around which cells of all grids are wanted, and how many cells far.
    pub around: BTreeMap<Entity, u32>,
}

/// Everything to address 0, and nothing wanted.
impl Default for Rules {
    fn default() -> Rules {
        Rules { rules: Vec::new(), otherwise: Some(0), wanted: Vec::new(), around: BTreeMap::new() }
    }
}

impl Rules {
    /// Where a PDU goes, whether it has priority by a rule, and how long it may then wait; none: nowhere.
    pub fn address(&self, pdu: Pdu<'_>) -> Option<(u32, bool, Option<Span>)> {
        let found = self.rules.iter().find_map(|rule| Some((rule.address(pdu)?, rule)));
        match found {
            Some((address, rule)) => Some((address?, rule.priority, rule.within)),
            None => Some((self.otherwise?, false, None)),
        }
    }

    /// The highest address that occurs, and whether a rule gives priority: the classic format has neither those above
    /// 65,535 nor that.
    pub fn reach(&self) -> (u32, bool) {
        let last = |target: &Target| match target {
            Target::Address(address) => *address,
            Target::Grid(grid) => grid.last(),
            Target::Drop => 0,
        };
        let targets = self.rules.iter().map(|rule| last(&rule.target));
        let wanted = self.wanted.iter().map(|range| *range.end());
        let highest = targets.chain(wanted).chain(self.otherwise).max();
        (highest.unwrap_or(0), self.rules.iter().any(|rule| rule.priority))
    }

    fn grids(&self) -> impl Iterator<Item = &Grid> {
        self.rules.iter().filter_map(|rule| match &rule.target {
            Target::Grid(grid) => Some(grid),
            _ => None,
        })
    }
}

/// What a host wants as the entities that it follows move.
#[derive(Debug, Default)]
pub struct Following {
    seen: BTreeMap<Entity, Seen>,
}

/// Where an entity was seen last.
#[derive(Debug)]
struct Seen {
    /// In which cell of each grid.
    cells: Vec<Option<[u32; 3]>>,
    /// What is wanted around it.
    wanted: BTreeSet<u32>,
}

impl Following {
    /// A PDU passed, in whichever direction; whether what is wanted may have changed.
    pub fn see(&mut self, rules: &Rules, pdu: Pdu<'_>) -> bool {
        if rules.around.is_empty() {
            return false;
        }
        let Some((entity, reach)) =
            pdu.entity().and_then(|entity| Some((entity, *rules.around.get(&entity)?)))
        else {
            return false;
        };
        let Some(location) = pdu.location() else { return false };
        let cells: Vec<_> = rules.grids().map(|grid| grid.cell(location)).collect();
        if self.seen.get(&entity).is_some_and(|before| before.cells == cells) {
            return false;
        }
        let around = rules.grids().zip(&cells).filter_map(|(grid, cell)| Some(grid.around((*cell)?, reach)));
        let wanted = around.flatten().collect();
        self.seen.insert(entity, Seen { cells, wanted });
        true
    }

    /// All that is wanted now beside what [always](Rules::wanted) is.
    pub fn wanted(&self, rules: &Rules) -> BTreeSet<u32> {
        let around = self.seen.values().flat_map(|seen| seen.wanted.iter().copied());
        around.filter(|address| !rules.wanted.iter().any(|range| range.contains(address))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::dis::ENTITY_STATE;

    /// An Entity State, or something else of the same form.
    fn pdu(exercise: u8, kind: u8, entity: Entity, location: [f64; 3]) -> Vec<u8> {
        let mut bytes = vec![0; 144];
        bytes[..4].copy_from_slice(&[6, exercise, kind, 1]);
        bytes[8..10].copy_from_slice(&144u16.to_be_bytes());
        for (at, number) in entity.into_iter().enumerate() {
            bytes[12 + 2 * at..][..2].copy_from_slice(&number.to_be_bytes());
        }
        for (axis, metres) in location.into_iter().enumerate() {
            bytes[48 + 8 * axis..][..8].copy_from_slice(&metres.to_be_bytes());
        }
        bytes
    }

    fn grid() -> Grid {
        Grid::in_world(1_000, 2, [100.0, -50.0, 0.0], vec![4, 3], 10.0).unwrap()
    }

    fn rule(target: Target) -> Rule {
        let [exercise, kind, family, site] = std::array::from_fn(|_| Numbers::default());
        Rule { exercise, kind, family, site, priority: false, within: None, target }
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let only = |range| Numbers(vec![range]);
        let rules = Rules {
            rules: vec![
                Rule { exercise: only(9..=9), ..rule(Target::Drop) },
                Rule { kind: only(1..=1), ..rule(Target::Grid(grid())) },
                Rule { kind: Numbers(vec![2..=3, 7..=7]), site: only(5..=6), ..rule(Target::Address(77)) },
                Rule { family: only(1..=1), kind: only(1..=2), ..rule(Target::Address(78)) },
            ],
            ..Rules::default()
        };
        let of = |exercise, kind, site, location| {
            let bytes = pdu(exercise, kind, [site, 1, 1], location);
            rules.address(Pdu::split(&bytes).unwrap().0).map(|(address, ..)| address)
        };
        let inside = [125.0, -35.0, 1e6];
        assert_eq!(of(1, ENTITY_STATE, 1, inside), Some(1_000 + 2 * (2 + 4)));
        assert_eq!(of(9, ENTITY_STATE, 1, inside), None);
        assert_eq!(of(1, ENTITY_STATE, 1, [99.9, -35.0, 0.0]), Some(78), "outside of the grid");
        assert_eq!(
            (of(1, 7, 6, inside), of(1, 2, 5, inside), of(1, 2, 7, inside)),
            (Some(77), Some(77), Some(78))
        );
        assert_eq!(of(1, 20, 5, inside), Some(0));
        // What has no site no rule matches that names some.
        let mut short = pdu(1, 7, [5, 1, 1], inside);
        short.truncate(12);
        short[8..10].copy_from_slice(&12u16.to_be_bytes());
        assert_eq!(rules.address(Pdu::split(&short).unwrap().0), Some((0, false, None)));
    }

    #[test]
    fn cells_are_half_open_and_what_is_no_number_is_in_none() {
        let grid = grid();
        for (x, cell) in
            [(100.0, Some(0)), (109.999, Some(0)), (110.0, Some(1)), (139.9, Some(3)), (140.0, None)]
        {
            assert_eq!(grid.cell([x, -50.0, 0.0]).map(|cell| cell[0]), cell, "{x}");
        }
        for x in [99.999, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e300] {
            assert_eq!(grid.cell([x, -50.0, 0.0]), None);
            assert_eq!(
                grid.cell([100.0, -50.0, x]),
                if x.is_finite() { Some([0, 0, 0]) } else { None },
                "{x}"
            );
        }
        let last = 1_000 + 2 * 11;
        assert_eq!((grid.address([3, 2, 0]), grid.address([4, 2, 0])), (Some(last), None));
        assert_eq!(grid.around([0, 0, 0], 1).into_iter().collect::<Vec<_>>(), [1_000, 1_002, 1_008, 1_010]);
        assert_eq!(grid.around([3, 2, 0], 9).len(), 12);
    }

    #[test]
    fn grids_that_cannot_be_are_refused() {
        let world =
            |first, step, cells: &[u32], size| Grid::in_world(first, step, [0.0; 3], cells.into(), size);
        assert_eq!(world(0, 1, &[256, 256], 1.0).map(|grid| grid.address([255, 255, 0])), Ok(Some(65_535)));
        let end = u32::MAX - 65_535;
        assert_eq!(world(end, 1, &[256, 256], 1.0).map(|grid| grid.last()), Ok(u32::MAX));
        assert_eq!(world(end + 1, 1, &[256, 256], 1.0), Err(NoGrid::Addresses));
        assert_eq!(world(end, 2, &[256, 256], 1.0), Err(NoGrid::Addresses));
        assert_eq!(world(0, 1, &[256, 257], 1.0), Err(NoGrid::Addresses));
        assert_eq!(world(0, 0, &[2], 1.0), Err(NoGrid::Addresses));
        assert_eq!(world(0, 1, &[u32::MAX, u32::MAX, 9], 1.0), Err(NoGrid::Addresses));
        assert_eq!(
            (world(0, 1, &[], 1.0), world(0, 1, &[1; 4], 1.0)),
            (Err(NoGrid::Axes), Err(NoGrid::Axes))
        );
        assert_eq!(world(0, 1, &[0, 5], 1.0), Err(NoGrid::Axes));
        assert_eq!(
            (world(0, 1, &[5], 0.0), world(0, 1, &[5], f64::NAN)),
            (Err(NoGrid::Size), Err(NoGrid::Size))
        );
        assert_eq!(Grid::on_earth(0, 1, [91.0, 0.0], vec![1, 1], 1.0), Err(NoGrid::Origin));
        assert_eq!(Grid::on_earth(0, 1, [0.0, 0.0], vec![1, 1, 1], 1.0), Err(NoGrid::Axes));
        assert_eq!(Grid::in_world(0, 1, [f64::NAN, 0.0, 0.0], vec![1], 1.0), Err(NoGrid::Origin));
    }

    #[test]
    fn east_and_north_are_where_they_are() {
        let grid = Grid::on_earth(0, 1, [36.6, -121.9], vec![10, 10], 1_000.0).unwrap();
        // On the ellipsoid, at that longitude, and upright there.
        let [x, y, z] = grid.origin;
        let on = (x * x + y * y) / 6_378_137f64.powi(2) + z * z / 6_356_752.314_245f64.powi(2);
        assert!((on - 1.0).abs() < 1e-12, "{on}");
        assert!((libm::atan2(y, x).to_degrees() + 121.9).abs() < 1e-9);
        let upright = [x / 6_378_137f64.powi(2), y / 6_378_137f64.powi(2), z / 6_356_752.314_245f64.powi(2)];
        let latitude = libm::atan2(upright[2], libm::sqrt(upright[0] * upright[0] + upright[1] * upright[1]));
        assert!((latitude.to_degrees() - 36.6).abs() < 1e-9);
        let length = |v: [f64; 3]| v.iter().map(|x| x * x).sum::<f64>();
        assert!(grid.axes.iter().all(|axis| (length(*axis) - 1.0).abs() < 1e-12));
        let place = |east: f64, north: f64| {
            std::array::from_fn(|n| grid.origin[n] + east * grid.axes[0][n] + north * grid.axes[1][n])
        };
        assert_eq!(grid.cell(place(2_500.0, 7_001.0)), Some([2, 7, 0]));
        assert_eq!(grid.cell(place(-1.0, 7_001.0)), None);
        // A degree of latitude to the north is about 111 km that way.
        let north = Grid::on_earth(0, 1, [36.61, -121.9], vec![1, 1], 1.0).unwrap().origin;
        assert_eq!(grid.cell([north[0], north[1], north[2] + 1e-3]).map(|cell| cell[1]), Some(1));
    }

    #[test]
    fn what_is_wanted_follows_an_entity() {
        let rules = Rules {
            rules: vec![rule(Target::Grid(grid()))],
            wanted: vec![5..=5, 1_000..=1_000],
            around: [([7, 8, 9], 1), ([7, 8, 10], 0)].into(),
            ..Rules::default()
        };
        let mut following = Following::default();
        let mut see = |kind, entity, x| {
            let bytes = pdu(1, kind, entity, [x, -50.0, 0.0]);
            let changed = following.see(&rules, Pdu::split(&bytes).unwrap().0);
            (changed, following.wanted(&rules).into_iter().collect::<Vec<_>>())
        };
        assert_eq!(see(ENTITY_STATE, [1, 2, 3], 120.0), (false, vec![]));
        assert_eq!(see(ENTITY_STATE, [7, 8, 10], 139.0), (true, vec![1_006]));
        let (changed, wanted) = see(ENTITY_STATE, [7, 8, 9], 139.0);
        assert_eq!((changed, wanted), (true, vec![1_004, 1_006, 1_012, 1_014]));
        assert!(!see(ENTITY_STATE, [7, 8, 9], 131.0).0, "the same cell");
        assert!(!see(2, [7, 8, 9], 101.0).0, "no Entity State");
        assert_eq!(see(ENTITY_STATE, [7, 8, 9], 200.0), (true, vec![1_006]), "it went away");
    }
}
