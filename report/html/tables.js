/* Tables that other packages add to an analysis; in the page only where there are any. */

SECTIONS.push((_, rank) => {
  const cards = rank.tables.map(({ title, name, columns, rows }) => tableCard(title, "", columns, rows, { sort: "", name }));
  return cards.some(Boolean) ? section("tables", "Further tables", null, ...cards) : null;
});
