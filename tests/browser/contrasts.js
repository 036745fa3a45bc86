// [contrast, element] of every visible text: its colour against the first background behind it that is not transparent.
// Source: https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio
(() => {
  const channel = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = (colour) => {
    const [red, green, blue] = numbers(colour);
    return 0.2126 * channel(red) + 0.7152 * channel(green) + 0.0722 * channel(blue);
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (numbers(colour)[3] !== 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const contrast = (text, back) => {
    const [low, high] = [light(text), light(back)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const hasText = (element) => [...element.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim());
  return [...document.querySelectorAll("body *")].filter((one) => hasText(one) && one.checkVisibility()).map((one) => {
    const colour = one instanceof SVGElement ? getComputedStyle(one).fill : getComputedStyle(one).color;
    return [contrast(colour, behind(one)), `${one.tagName} ${one.id} ${one.className}`];
  });
})()
