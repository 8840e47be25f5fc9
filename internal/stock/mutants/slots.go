package mutants

import "database/sql/driver"

var slotsBugs = []Mutant{
	mutant("slots-unchecked", "slots", "The UPDATE of a slot has no condition that there is enough.",
		rewrite(1, "AND slot = ? AND stock >= ?", "AND slot = ? AND (stock >= ? OR TRUE)")),
	mutant("slots-tail-unlocked", "slots", "The last units are gathered without locking the slots.",
		rewrite(1, "ORDER BY slot FOR UPDATE", "ORDER BY slot")),
	mutant("slots-no-tail", "slots", "A request is refused if no single slot has enough, although all together do.",
		rewrite(1, "SELECT slot, stock, sold FROM good_slot WHERE goods_id = ? ORDER BY slot FOR UPDATE",
			"SELECT slot, 0 AS stock, sold FROM good_slot WHERE goods_id = ? ORDER BY slot FOR UPDATE")),
	mutant("slots-blind", "slots", "The last slot is overlooked when the slots are added up.",
		rewrite(1, "ORDER BY slot", "AND slot < 15 ORDER BY slot")),
	mutant("slots-tail-loses-a-unit", "slots", "A unit disappears whenever units are spread anew.",
		rewrite(1, "SELECT slot, stock, sold FROM good_slot WHERE goods_id = ? ORDER BY slot FOR UPDATE",
			"SELECT slot, stock - (slot = 0 AND stock > 0) AS stock, sold FROM good_slot WHERE goods_id = ?"+
				" ORDER BY slot FOR UPDATE")),
	mutant("slots-loses-a-sale", "slots", "1 sale in 200 is confirmed and not deducted.",
		rewrite(200, "SET stock = stock - ? WHERE goods_id = ? AND slot",
			"SET stock = stock - 0 * ? WHERE goods_id = ? AND slot")),
	mutant("escrow-home-only", "escrow",
		"A batch that a replica's own row cannot cover is refused, although all rows together can.",
		rewrite(1, "SELECT slot, stock, sold FROM good_slot", "SELECT slot, 0 AS stock, sold FROM good_slot")),
	mutant("escrow-loses-a-batch", "escrow", "1 batch in 20 is confirmed and not deducted.",
		rewrite(20, "SET stock = stock - ?, sold = sold + ?", "SET stock = stock - 0 * ?, sold = sold + ?")),
}

var unitBugs = []Mutant{
	mutant("units-unlocked", "units", "The rows of free units are read without locking them.",
		rewrite(1, "FOR UPDATE SKIP LOCKED", "")),
	mutant("units-locked-is-sold", "units", "A request for the last units is refused while others have locked them.",
		rewrite(1, "(SELECT COUNT(*) FROM good_unit WHERE goods_id = ?)",
			"(SELECT COUNT(*) FROM (SELECT 1 FROM good_unit WHERE goods_id = ? FOR UPDATE SKIP LOCKED) free)")),
	mutant("units-keeps-a-row", "units", "1 sale in 50 is confirmed, and its rows are not deleted.",
		instead(50, "WHERE goods_id = ? AND unit IN (", func(s *statement) (driver.Result, error) {
			return faked{rows: int64(len(s.args) - 1)}, nil
		})),
	mutant("units-makes-too-many", "units",
		"The rows that are made are not subtracted from the units that are to be made.",
		rewrite(1, "SET unmade = unmade - ?", "SET unmade = unmade - 0 * ?")),
	mutant("units-blind", "units", "Units without a row are overlooked.",
		rewrite(1, "SELECT unmade, made", "SELECT 0 * unmade AS unmade, made")),
}

// spreads is the beginning of the statement that writes all slots of an item. Its arguments are, for each slot, the
// item, the slot and the units.
const spreads = "INSERT INTO good_slot"
