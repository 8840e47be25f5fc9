// Draws the windows of a page of timelines, one at a time.
{
  const windows = JSON.parse(document.getElementById("windows").textContent);
  const element = document.getElementById("timeline"), choice = document.getElementById("item");
  if (choice) choice.addEventListener("change", () => drawTimeline(element, windows[choice.value]));
  drawTimeline(element, windows[0]);
}
