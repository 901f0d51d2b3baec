"""The words of the generated WebShop catalogue: kinds of products, what is said of them, what can be chosen, and how people ask for them.

Everything here is written for the project. The tables are text, one entry a line, because they are read and amended by people; `product` puts them
together. Two rules keep every goal winnable under the official reward, and the tests check both:

* an option's value keeps its meaning under the reward's normalisation of colours, which takes the first colour name found *inside* the value,
  so no value may contain a colour name as a part of another word;
* attributes and option values of goals hold a letter or digit outside the upper half of Latin-1, which the fuzzy match leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "BRAND_ENDS",
    "BRAND_STARTS",
    "BULLET_HEADS",
    "COLORS",
    "HUMAN_ATTRIBUTES",
    "HUMAN_ENDS",
    "HUMAN_OPENINGS",
    "HUMAN_OPTIONS",
    "KINDS",
    "OPTION_POOLS",
    "SENTENCES",
    "TITLE_EXTRAS",
    "Kind",
]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of product.

    Attributes:
        category: one of the five categories of the official files.
        query: the search by which the shop found products of this kind; the goal's product type.
        path: the shelf, parts joined by " › ".
        nouns: what a title calls it.
        asked: how somebody asks for one, with its article.
        prices: lowest and highest price in dollars.
        options: names in `OPTION_POOLS`.
        materials: what it is made of, or with.
        uses: where or for whom.
        before: attributes that stand before the noun ("long lasting").
        having: attributes behind "with" ("rubber sole").
        fitting: attributes behind "for" ("dry hair").
    """

    category: str
    query: str
    path: str
    nouns: tuple[str, ...]
    asked: str
    prices: tuple[float, float]
    options: tuple[str, ...]
    materials: tuple[str, ...]
    uses: tuple[str, ...]
    before: tuple[str, ...]
    having: tuple[str, ...]
    fitting: tuple[str, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


# What is said of a family of kinds: before the noun; with; for; materials; uses.
_FAMILIES = """
hair: sulfate free, paraben free, cruelty free, plant based, alcohol free, long lasting; argan oil, coconut oil, tea tree, natural ingredients, keratin treatment; dry hair, damaged hair, curly hair, hair growth, dry scalp; Argan Oil, Rosemary, Oat Milk, Charcoal, Honey; Daily Washing, Men and Women, Travel, Coloured Hair
skin: fragrance free, dermatologist tested, anti aging, oil free, cruelty free, easy apply; hyaluronic acid, vitamin c, green tea, essential oils, coconut oil; sensitive skin, dry skin, fine lines, dark circles, dead skin; Aloe, Vitamin C, Shea Butter, Green Tea, Jojoba; Face and Neck, Night Care, Men and Women, All Seasons
makeup: long lasting, cruelty free, travel size, highly pigmented, easy clean, high quality; synthetic hair, natural ingredients, rose gold, stainless steel; nail art, nail polish, eye shadow, sensitive skin; Mineral Powder, Beeswax, Bamboo, Nylon Bristle; Beginners, Evening Looks, Professional Artists, Gifts
mouth: fluoride free, alcohol free, bpa free, easy use, non slip; natural ingredients, tea tree, coconut oil; fresh breath, sensitive teeth, bad breath, oral hygiene; Mint, Charcoal, Bamboo, Clove; Adults, Children, Travel, Morning and Evening
cable: gold plated, high speed, heavy duty, plug play, fast charging, easy carry; aluminum alloy, carbon fiber, output protection, blu ray; usb port, home theater, wireless charging, car audio; Braided Nylon, Copper, Aluminium, Rubber; Television, Laptop, Car, Game Console
audio: noise cancelling, hands free, water resistant, long lasting, high definition, easy carry; stereo sound, wireless bluetooth, quick release, built in microphone; home theater, sound system, outdoor sports, long rides; Silicone, Walnut, Aluminium, Foam; Running, Office Calls, Parties, Commuting
phone: case friendly, shock proof, light weight, easy install, ultra slim, dust proof; tempered glass, carbon fiber, wireless charging, kick stand, screen protector; cell phone, apple watch, daily protection, outdoor work; Leather, Silicone, Tempered Glass, Recycled Plastic; Work, Sport, Travel, Everyday Carry
optics: high resolution, easy carry, heavy duty, quick release, non slip, water resistant; carbon fiber, aluminum alloy, optical zoom, carrying case; bird watching, digital photography, live streaming, stage shows; Aluminium, Carbon Fibre, Optical Glass, Rubber; Hiking, Concerts, Studio, Beginners
furniture: easy assemble, space saving, heavy duty, fully assembled, easy clean, height adjustable; solid wood, metal legs, wood frame, memory foam, storage space; living room, dining room, small spaces, home office; Oak, Walnut, Rattan, Steel, Pine; Flats, Entrance Halls, Guests, Reading Corners
textile: machine washable, super soft, non slip, eco friendly, double sided, hand woven; printing technology, blackout lining, stain guard, anti slip backing; living room, dining room, bedroom windows, kids rooms; Cotton, Linen, Wool, Velvet, Jute; Bedrooms, Balconies, Gifts, Country Houses
decor: ready hang, hand painted, lead free, long burning, energy efficient, easy install; soy wax, glass shade, bronze finish, wood frame, natural wicks; living room, bedside tables, garden parties, wall corners; Ceramic, Glass, Brass, Terracotta, Soy Wax; Housewarming, Windowsills, Offices, Dinner Tables
top: machine wash, hand wash, slim fit, loose fit, quick drying, wash cold; long sleeve, short sleeve, button closure, polyester spandex, classic collar, drawstring waist; daily wear, gym workout, teen girls, cold weather; Cotton, Merino Wool, Linen, Fleece, Jersey; Spring, Work, Weekends, Big and Tall
bottom: machine wash, straight leg, high waist, moisture wicking, wide leg, wash cold; elastic waist, drawstring closure, zipper pockets, tummy control, relaxed fit; daily wear, yoga classes, gym workout, long flights; Denim, Corduroy, Cotton, Bamboo Viscose, Flannel; Summer, Running, Lounging, Work
shoe: slip resistant, light weight, steel toe, open toe, memory foam, anti odour; rubber sole, arch support, leather lining, ankle strap, lace closure; wide feet, daily wear, long walks, wet floors; Suede, Canvas, Leather, Mesh; Summer, Nurses, Hiking, Weddings
food: gluten free, non gmo, low sugar, certified organic, dairy free, soy free, individually wrapped; natural ingredients, natural flavors, high fructose free recipe, quality ingredients, dietary fiber; gift baskets, school lunches, birthday parties, weight goals; Almonds, Sea Salt, Dark Chocolate, Oats, Maple; Snacking, Lunch Boxes, Baking, Sharing
drink: caffeine free, usda organic, keto friendly, freeze dried, sugar free, fair trade; natural ingredients, artificial colors left out, real fruit, zero sugar; iced drinks, cold brew, quiet evenings, gift sets; Chamomile, Ginger, Hibiscus, Arabica Beans, Lemon; Mornings, Offices, Camping, Guests
"""

# category | query | path | nouns | how one asks | prices | options | family
_KINDS = """
beauty | shampoo & conditioner | Beauty & Personal Care › Hair Care › Shampoo & Conditioner | Shampoo, Shampoo and Conditioner Set, Shampoo Bar | a shampoo | 5-60 | Scent, Size ml | hair
beauty | hair masks | Beauty & Personal Care › Hair Care › Hair Treatments › Masks | Hair Mask, Deep Repair Mask | a hair mask | 8-48 | Size ml | hair
beauty | hair styling tools | Beauty & Personal Care › Hair Care › Styling Tools › Brushes & Combs | Detangling Brush, Round Brush, Wide Comb | a hair brush | 6-70 | Color, Style | hair
beauty | hair loss products | Beauty & Personal Care › Hair Care › Hair Loss Products | Scalp Serum, Roller Serum, Growth Tonic | a scalp serum | 12-80 | Size ml | hair
beauty | face moisturizers | Beauty & Personal Care › Skin Care › Face › Creams & Moisturizers | Face Cream, Day Lotion, Gel Moisturizer | a face cream | 7-95 | Size ounces | skin
beauty | eyes care | Beauty & Personal Care › Skin Care › Eyes › Creams | Eye Cream, Eye Serum, Gel Patches | an eye cream | 9-70 | Size ml | skin
beauty | sun care | Beauty & Personal Care › Skin Care › Sunscreens & Tanning Products | Sunscreen Lotion, Sun Stick, After Sun Gel | a sunscreen | 8-40 | Size ounces, Style | skin
beauty | bathing accessories | Beauty & Personal Care › Bath & Shower › Bathing Accessories | Bath Sponge, Back Brush, Shower Puff | a bath sponge | 5-30 | Color, Quantity | skin
beauty | lips makeup | Beauty & Personal Care › Makeup › Lips › Lip Balms & Treatments | Lip Balm, Lip Tint, Lip Gloss | a lip balm | 4-35 | Shade, Scent | makeup
beauty | nail polish | Beauty & Personal Care › Foot, Hand & Nail Care › Nail Art & Polish › Nail Polish | Gel Nail Polish, Nail Lacquer | a nail polish | 5-32 | Shade | makeup
beauty | makeup brushes & tools | Beauty & Personal Care › Tools & Accessories › Makeup Brushes & Tools › Brush Sets | Makeup Brush Set, Powder Brush, Blending Sponge | a makeup brush set | 6-55 | Color, Quantity | makeup
beauty | women's fragrance | Beauty & Personal Care › Fragrance › Women's › Eau de Parfum | Eau de Parfum, Body Mist, Perfume Oil | a perfume | 12-140 | Scent, Size ml | makeup
beauty | toothbrushes | Beauty & Personal Care › Oral Care › Toothbrushes & Accessories | Toothbrush, Travel Toothbrush, Tongue Scraper | a toothbrush | 4-60 | Color, Quantity | mouth
beauty | toothpaste | Beauty & Personal Care › Oral Care › Toothpaste | Toothpaste, Tooth Powder, Whitening Gel | a toothpaste | 4-28 | Mint, Size ounces | mouth
electronics | hdmi cables | Electronics › Television & Video › Accessories › Cables › HDMI Cables | HDMI Cable, HDMI Extension Lead, HDMI Adapter | an hdmi cable | 6-75 | Length | cable
electronics | power adapters | Electronics › Accessories & Supplies › Power Adapters | Power Adapter, Charging Block, Wall Charger | a power adapter | 8-60 | Color, Plug | cable
electronics | usb hubs | Electronics › Computers & Accessories › Networking › Hubs | USB Hub, Docking Station | a usb hub | 12-120 | Ports | cable
electronics | signal boosters | Electronics › Computers & Accessories › Networking Products › Repeaters | Signal Booster, Wireless Repeater | a signal booster | 18-190 | Plug | cable
electronics | bluetooth headsets | Electronics › Headphones › Over-Ear Headphones | Bluetooth Headset, Over Ear Headphones, Earbuds | a bluetooth headset | 15-320 | Color | audio
electronics | home theater systems | Electronics › Home Audio › Speakers › Home Theater Systems | Soundbar, Bookshelf Speakers, Subwoofer | a soundbar | 45-1490 | Color, Style | audio
electronics | portable speakers | Electronics › Portable Audio & Video › Portable Speakers & Docks | Portable Speaker, Shower Speaker | a portable speaker | 16-260 | Color | audio
electronics | phone cases | Cell Phones & Accessories › Cases, Holsters & Sleeves › Basic Cases | Phone Case, Wallet Case, Bumper Case | a phone case | 7-45 | Color, Phone | phone
electronics | screen protectors | Cell Phones & Accessories › Accessories › Screen Protectors | Screen Protector, Privacy Screen | a screen protector | 6-30 | Phone, Quantity | phone
electronics | wearable technology | Electronics › Wearable Technology › Bands & Straps | Watch Band, Watch Strap, Bracelet Band | a watch band | 8-60 | Color, Watch | phone
electronics | tripods & monopods | Electronics › Camera & Photo › Tripods & Monopods › Tripods | Tripod, Travel Tripod, Selfie Stick | a tripod | 14-240 | Color, Length | optics
electronics | binoculars & scopes | Electronics › Camera & Photo › Binoculars & Scopes › Binoculars | Binoculars, Spotting Scope, Monocular | a pair of binoculars | 25-680 | Magnification | optics
electronics | digital photography backgrounds | Electronics › Camera & Photo › Lighting & Studio › Backgrounds | Photo Backdrop, Studio Background | a photo backdrop | 10-90 | Size feet | optics
garden | console tables | Home & Kitchen › Furniture › Living Room Furniture › Tables › Sofa & Console Tables | Console Table, Hall Table | a console table | 60-890 | Finish | furniture
garden | book cases | Home & Kitchen › Furniture › Home Office Furniture › Bookcases | Bookcase, Ladder Shelf, Corner Shelf | a bookcase | 45-620 | Finish, Shelves | furniture
garden | bar stools | Home & Kitchen › Furniture › Game & Recreation Room Furniture › Home Bar Furniture › Barstools | Bar Stool, Counter Stool | a bar stool | 55-540 | Color, Set | furniture
garden | desks | Home & Kitchen › Furniture › Home Office Furniture › Home Office Desks | Writing Desk, Standing Desk | a desk | 80-1390 | Finish, Width | furniture
garden | bed frames | Home & Kitchen › Furniture › Bedroom Furniture › Beds, Frames & Bases › Bed Frames | Bed Frame, Platform Bed | a bed frame | 110-1250 | Bed, Finish | furniture
garden | storage bins | Home & Kitchen › Storage & Organization › Baskets, Bins & Containers | Storage Basket, Storage Box, Laundry Hamper | a storage basket | 9-75 | Color, Quantity | furniture
garden | area rugs | Home & Kitchen › Home Décor Products › Area Rugs, Runners & Pads › Area Rugs | Area Rug, Runner Rug, Round Rug | an area rug | 22-580 | Color, Rug | textile
garden | decorative pillows | Home & Kitchen › Bedding › Decorative Pillows, Inserts & Covers › Throw Pillow Covers | Throw Pillow Cover, Cushion Cover | a throw pillow cover | 7-58 | Color, Pillow | textile
garden | window coverings | Home & Kitchen › Home Décor Products › Window Treatments › Curtains & Drapes › Panels | Curtain Panel, Blackout Curtain | a curtain panel | 12-120 | Color, Curtain | textile
garden | bath mats | Home & Kitchen › Bath › Bath Rugs › Mats | Bath Mat, Shower Mat | a bath mat | 9-56 | Color | textile
garden | table lamps | Tools & Home Improvement › Lighting & Ceiling Fans › Lamps & Shades › Table Lamps | Table Lamp, Desk Lamp, Bedside Lamp | a table lamp | 18-260 | Finish | decor
garden | candles | Home & Kitchen › Home Décor Products › Candles & Holders › Candles › Jar Candles | Jar Candle, Pillar Candle, Tea Lights | a scented candle | 6-64 | Scent, Quantity | decor
garden | wall art | Home & Kitchen › Wall Art › Posters & Prints | Canvas Print, Framed Poster, Wall Hanging | a canvas print | 12-210 | Print | decor
garden | planters | Patio, Lawn & Garden › Gardening & Lawn Care › Pots, Planters & Container Accessories | Planter, Flower Pot, Hanging Pot | a planter | 8-130 | Color, Set | decor
fashion | women's dresses | Clothing, Shoes & Jewelry › Women › Clothing › Dresses › Casual | Wrap Dress, Midi Dress, Summer Dress | a dress | 15-160 | Color, Size | top
fashion | men's shirts | Clothing, Shoes & Jewelry › Men › Clothing › Shirts › Button-Down Shirts | Button Down Shirt, Oxford Shirt, Work Shirt | a men's shirt | 14-95 | Color, Size, Fit | top
fashion | women's sweaters | Clothing, Shoes & Jewelry › Women › Clothing › Sweaters › Pullovers | Pullover Sweater, Knit Cardigan | a sweater | 18-190 | Color, Size | top
fashion | men's fashion hoodies & sweatshirts | Clothing, Shoes & Jewelry › Men › Clothing › Fashion Hoodies & Sweatshirts | Hoodie, Zip Sweatshirt | a hoodie | 16-110 | Color, Size | top
fashion | women's coats, jackets & vests | Clothing, Shoes & Jewelry › Women › Clothing › Coats, Jackets & Vests | Rain Jacket, Quilted Vest, Trench Coat | a women's jacket | 28-420 | Color, Size | top
fashion | women's jumpsuits | Clothing, Shoes & Jewelry › Women › Clothing › Jumpsuits, Rompers & Overalls | Jumpsuit, Romper | a jumpsuit | 17-120 | Pattern, Size | top
fashion | men's pants | Clothing, Shoes & Jewelry › Men › Clothing › Pants › Casual | Chino Trousers, Cargo Pants | a pair of men's pants | 18-130 | Color, Waist | bottom
fashion | women's leggings | Clothing, Shoes & Jewelry › Women › Clothing › Leggings | Leggings, Yoga Tights | a pair of leggings | 10-98 | Color, Size | bottom
fashion | women's jeans | Clothing, Shoes & Jewelry › Women › Clothing › Jeans | Jeans, Cropped Jeans | a pair of jeans | 22-180 | Wash, Waist | bottom
fashion | men's sleep & lounge | Clothing, Shoes & Jewelry › Men › Clothing › Sleep & Lounge › Sleep Bottoms | Pajama Pants, Lounge Shorts | a pair of pajama pants | 12-75 | Pattern, Size | bottom
fashion | women's sandals | Clothing, Shoes & Jewelry › Women › Shoes › Sandals › Flats | Slide Sandals, Strap Sandals | a pair of sandals | 14-140 | Color, Shoe | shoe
fashion | men's fashion sneakers | Clothing, Shoes & Jewelry › Men › Shoes › Fashion Sneakers | Sneakers, Low Top Trainers | a pair of sneakers | 24-190 | Two tone, Shoe | shoe
fashion | men's boots | Clothing, Shoes & Jewelry › Men › Shoes › Boots › Work & Safety | Work Boots, Chelsea Boots | a pair of boots | 40-310 | Color, Shoe, Fit width | shoe
fashion | women's slippers | Clothing, Shoes & Jewelry › Women › Shoes › Slippers | House Slippers, Clogs | a pair of slippers | 11-80 | Color, Shoe | shoe
grocery | granola & nut bars | Grocery & Gourmet Food › Snack Foods › Bars › Granola Bars | Granola Bars, Nut Bars, Protein Bars | a box of granola bars | 5-48 | Flavor, Count | food
grocery | chocolates | Grocery & Gourmet Food › Snack Foods › Candy & Chocolate › Chocolate Bars | Chocolate Bar, Truffles, Chocolate Bark | a chocolate bar | 4-65 | Flavor, Count | food
grocery | crackers | Grocery & Gourmet Food › Snack Foods › Crackers › Assortments | Seed Crackers, Crispbread, Rice Crackers | a box of crackers | 4-38 | Flavor | food
grocery | dried fruits & nuts | Grocery & Gourmet Food › Snack Foods › Nuts & Seeds › Mixed Nuts | Trail Mix, Dried Mango, Roasted Cashews | a trail mix | 6-70 | Size pounds | food
grocery | breakfast foods | Grocery & Gourmet Food › Breakfast Foods › Cereals › Muesli | Muesli, Porridge Oats, Pancake Mix | a breakfast cereal | 5-42 | Flavor, Count | food
grocery | sauces & marinades | Grocery & Gourmet Food › Sauces, Gravies & Marinades › Hot Sauce | Hot Sauce, Basil Pesto, Pepper Relish | a hot sauce | 5-36 | Flavor, Size ounces | food
grocery | pasta & noodles | Grocery & Gourmet Food › Pasta & Noodles › Pasta | Penne Pasta, Lentil Pasta, Rice Noodles | a pasta | 4-40 | Count | food
grocery | herbs, spices & seasonings | Grocery & Gourmet Food › Herbs, Spices & Seasonings › Mixed Spices & Seasonings | Spice Blend, Seasoning Rub, Smoked Paprika | a spice blend | 4-34 | Jar | food
grocery | tea beverages | Grocery & Gourmet Food › Beverages › Bottled Beverages, Water & Drink Mixes › Tea › Herbal | Herbal Tea, Green Tea, Loose Leaf Tea | a herbal tea | 5-50 | Tea, Bags | drink
grocery | coffee beverages | Grocery & Gourmet Food › Beverages › Coffee, Tea & Cocoa › Coffee › Whole Bean | Coffee Beans, Ground Coffee, Instant Coffee | a bag of coffee | 7-68 | Roast, Size ounces | drink
grocery | fruit juice | Grocery & Gourmet Food › Beverages › Juices › Fruit Juice | Fruit Juice, Drink Powder, Lemonade Mix | a fruit juice | 5-45 | Juice, Count | drink
"""

COLORS = _words(
    "Black, White, Red, Navy Blue, Green, Beige, Dark Grey, Light Blue, Pink, Orange, Yellow, Purple, Brown, Olive Green, Burgundy, Teal, "
    "Ivory, Gold, Silver, Turquoise, Coffee Brown, Sky Blue, Mint, Coral, Khaki, Lavender"
)

# The name shown : the values, in the order in which a shop lists them. A name that begins with "=" takes the values of another.
_OPTIONS = """
Color: Color: =
Size: Size: X-Small, Small, Medium, Large, X-Large, XX-Large, 3X-Large
Size ml: Size: 30 ml, 50 ml, 100 ml, 150 ml, 250 ml, 500 ml, 1000 ml
Size ounces: Size: 0.5 Ounce (Pack of 1), 1.7 Ounce, 3.4 Ounce, 8 Ounce, 12 Ounce, 8 Ounce (Pack of 2), 2 Pound
Size pounds: Size: 0.5 Pound, 1 Pound, 2 Pound, 5 Pound, 1 Pound (Pack of 3)
Size feet: Size: 3x5 ft, 5x7 ft, 6x9 ft, 8x10 ft, 10x20 ft
Length: Size: 3 Feet, 6 Feet, 10 Feet, 15 Feet, 25 Feet, 50 Feet
Ports: Style: 4 Ports, 7 Ports, 10 Ports with Switch
Plug: Style: US Plug, EU Plug, UK Plug
Phone: Size: 5.4 Inch, 6.1 Inch, 6.5 Inch, 6.7 Inch Max
Watch: Size: 38mm, 40mm, 42mm, 44mm
Magnification: Style: 8x25, 8x42, 10x42, 12x50, 20x80 with Tripod Mount
Finish: Color: Natural Oak, Dark Walnut, White, Black, Rustic Brown, Antique White
Shelves: Size: 3 Shelves, 4 Shelves, 5 Shelves
Width: Size: 40 Inch, 48 Inch, 55 Inch, 63 Inch
Bed: Size: Twin, Full, Queen, King
Rug: Size: 2 ft x 3 ft, 2 ft x 8 ft, 4 ft x 6 ft, 5 ft x 7 ft, 8 ft x 10 ft, 9 ft x 12 ft
Pillow: Size: 12"x20", 16"x16", 18"x18", 20"x20", 26"x26"
Curtain: Size: 42"W x 63"L, 52"W x 84"L, 52"W x 96"L, 52"W x 108"L
Set: Set: Set of 1, Set of 2, Set of 4
Quantity: Item Package Quantity: 1, 2, 3, 6, 12
Count: Size: 1 Count, 6 Count, 12 Count, 1.41oz/40g x 10, 24 Count
Jar: Size: 2 Ounce Jar, 5.5 Ounce Jar, 1 Pound Bag, 3.5oz/100g Refill
Bags: Size: 16 Bags, 20 Bags, 50 Bags, 100 Bags
Shade: Color: 01 Rose, 02 Plum, 03 Peach, 04 Cherry, 05 Nude, 06 Copper
Scent: Scent: Vanilla, Cedar, Fresh Linen, Citrus, Eucalyptus, Unscented, Fig/Cassis
Flavor: Flavor Name: Vanilla, Dark Chocolate, Sea Salt, Peanut Butter, Mango, Lemon/Ginger, Original, Chili Lime
Tea: Flavor Name: Chamomile, Jasmine, Lemon/Ginger, Rooibos, Spiced Apple, Mint
Juice: Flavor Name: Apple, Mango, Sour Cherry, Lemon/Lime, Pineapple, Blood Orange
Mint: Flavor Name: Cool Mint, Cinnamon, Fennel, Charcoal/Mint
Roast: Flavor Name: Light Roast, Medium Roast, Dark Roast, Decaf
Pattern: Pattern Name: Stripes, Polka Dots, Plaid, Solid, Tie Dye, Floral
Print: Color: Mountain Lake, Harbour at Night, Field of Poppies, Abstract No. 7, Map of the World
Wash: Color: Light Rinse, Medium Rinse, Dark Rinse, Black Rinse
Two tone: Color: Black/White, White/Black, Grey/Red, Navy/Gold
Fit: Fit Type: Slim, Regular, Relaxed, Big & Tall
Fit width: Fit Type: Narrow, Regular, Wide, Extra Wide
Waist: Size: 28W x 30L, 30W x 30L, 32W x 32L, 34W x 32L, 36W x 34L, 40W x 30L
Shoe: Size: 6, 6.5, 7, 7.5, 8, 8.5, 9, 10, 11.5, 13
Style: Style: Classic, Travel, Deluxe, 2-in-1 Kit
"""


def _pools() -> dict[str, tuple[str, tuple[str, ...]]]:
    pools = {}
    for line in _OPTIONS.strip().splitlines():
        key, name, values = (part.strip() for part in line.split(":", 2))
        pools[key] = (name, COLORS if values == "=" else _words(values))
    return pools


OPTION_POOLS = _pools()
"""Key of a kind's option -> the name that the shop shows, and the values to choose from."""


def _kinds() -> tuple[Kind, ...]:
    families = {}
    for line in _FAMILIES.strip().splitlines():
        name, rest = line.split(":", 1)
        families[name] = [_words(part) for part in rest.split(";")]
    kinds = []
    for line in _KINDS.strip().splitlines():
        category, query, path, nouns, asked, prices, options, family = (part.strip() for part in line.split("|"))
        low, high = prices.split("-")
        before, having, fitting, materials, uses = families[family]
        kinds.append(
            Kind(
                *(category, query, path, _words(nouns), asked, (float(low), float(high)), _words(options)),
                *(materials, uses, before, having, fitting),
            )
        )
    return tuple(kinds)


KINDS = _kinds()

BRAND_STARTS = _words(
    "Al, Bel, Cor, Dun, El, Fara, Gren, Hol, Ister, Jun, Kel, Lor, Mar, Nord, Osk, Pell, Quin, Ros, Sten, Tor, Ulm, Ver, Wil, Yar, Zan"
)
BRAND_ENDS = _words(
    "ada, bury, cote, dale, eska, field, gate, holm, ina, ley, mont, nova, or, port, ridge, sen, ton, una, vale, wick, ya, zone"
)

# What else a title may carry. Fields: see `SENTENCES`.
TITLE_EXTRAS = (
    "{Before}",
    "with {Having}",
    "for {Fitting}",
    "for {Use}",
    "{Material}",
    "{Before} and {Before2}",
    "Made of {Material}",
    "Improved Version",
    "{number} Pack",
    "Gift Box Included",
    "Model {code}",
    "{color}",
    "Upgraded {year} Edition",
    "{number} Piece Set",
)

BULLET_HEADS = (
    "",
    "",
    "",
    "QUALITY YOU CAN FEEL: ",
    "WHAT YOU GET: ",
    "Care: ",
    "[Easy to Use] ",
    "【Material】",
    "✔ ",
    "Note - ",
    "Our promise: ",
    "Size & fit: ",
    "<b>Tip</b> ",
)

# Fields: brand, noun, material, use, before, before2, having, fitting, color, number, code, year, low, high.
SENTENCES = (
    "This {noun} is {before} and made to be used every day.",
    "A {before}, {before2} {noun} with {having}.",
    "Made of {material}, checked by hand before it leaves our workshop.",
    "With {having} you will not need a second one.",
    "Recommended for {fitting} and for {use}.",
    "We chose {material} because it keeps its shape and its colour for years.",
    "The parcel holds {number} pieces, a leaflet in {low} languages and a small cloth bag.",
    "Weighs {high} grams and measures {low} x {high} cm, so it fits in any drawer.",
    "If anything is wrong, write to {brand} and you will hear from us within {number} days.",
    "Tested by {high} families who told us what to change.",
    "The colour may differ a little from the picture, since screens differ.",
    "Please allow a difference of 1-{number} cm, as we measure by hand.",
    "Wipe it with a damp cloth; do not use bleach.",
    "Our {noun} is {before}: you see the difference on the first day.",
    "Good for {use}, good for {fitting}, good as a present.",
    "Since {year} we have made nothing but things like this {noun}.",
    "It is {before} because we leave out what nobody needs.",
    "Model {code} replaces the older one and works with all its parts.",
    "No tools are needed: open the box, and it is ready in {number} minutes.",
    "You choose the size, we choose the {material}.",
    "People buy it for {fitting} and keep it for {use}.",
    "{brand} plants a tree for every {high} orders.",
    "Store in a cool, dry place & keep away from children under {number}.",
    "Ships in a plain box made of recycled paper, without plastic.",
    "Compared with last year's version it has {having} and costs {low}% less to make.",
    "Not sure about the size? Take the larger one.",
)

# Templates of what a person might ask for. {asked}: the thing with its article; {attributes}: clauses of
# HUMAN_ATTRIBUTES; {options}: a clause of HUMAN_OPTIONS or nothing.
HUMAN_OPENINGS = (
    "i am looking for {asked}{attributes}{options}",
    "i need {asked}{attributes}{options}",
    "find {asked}{attributes}{options}",
    "i'd like to buy {asked}{attributes}{options}",
    "can you show me {asked}{attributes}{options}?",
    "i want {asked}{attributes}{options}",
    "hello, do you have {asked}{attributes}{options}?",
    "my sister asked me to get her {asked}{attributes}{options}",
    "get me {asked}{attributes}{options}",
    "looking for {asked}{attributes}{options}",
    "we are out of luck everywhere else: is there {asked}{attributes}{options}?",
    "please help me find {asked}{attributes}{options}",
    "it's a present, so i'd want {asked}{attributes}{options}",
    "i have been searching for {asked}{attributes}{options}",
    "for next week i'll need {asked}{attributes}{options}",
    "what i need most is {asked}{attributes}{options}",
)
HUMAN_ATTRIBUTES = (
    (" that is {}", " that's {}", " which should be {}", ", it must be {}", " of the {} kind"),
    (" with {}", " that has {}", " and i would like {} with it", ", with {}"),
    (" for {}", ", mainly for {}", " that is good for {}", " to use for {}"),
)
"""Clauses by the attribute's role: before the noun, behind "with", behind "for"."""
HUMAN_OPTIONS = (
    ", {values}",
    " in {values}",
    ". i'd take it in {values}",
    ", and it has to come in {values}",
    " - {values} please",
    ". make it {values}",
    "; the one in {values}",
)
HUMAN_ENDS = ("", "", "", ".", ".", ", thanks", ". thank you", "!", ". it should not be a used one", ", if possible")
